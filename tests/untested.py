"""What the tests did not test on this machine, by what it lacks: the last lines of a run, because a skipped test looks green."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple


class Lack(NamedTuple):
    reason: str  # a pattern in the reasons of skips
    name: str
    tested: str  # what goes untested
    fix: str


# The first whose pattern is found is meant; those of consequence for safety stand above.
LACKS = (
    Lack(
        r"bwrap|bubblewrap|namespaces",
        "bubblewrap",
        "every attack on the sandbox, and rewards that run programs",
        "apt install bubblewrap, and run as root or allow user namespaces",
    ),
    Lack(
        r"chromium|playwright",
        "chromium",
        "the report and the chat page in a browser",
        "apt install chromium-headless-shell; pip install playwright",
    ),
    Lack(
        r"CUDA|GPU",
        "a GPU",
        "kernels, training and sampling as they run on one",
        "run these tests on a machine with one",
    ),
    Lack(
        r"shared/data|published|is not on this machine",
        "data beside the repository",
        "real texts, benchmarks and published files",
        "put them into ../shared/data",
    ),
    Lack(r"INGOT_VERIFIERS_PYTHON", "verifiers", "its environments", "make test-all"),
)
PACKAGE = re.compile(r"could not import '([\w.]+)'|needs ([\w-]+) \(pip install")


def lack_of(reason: str) -> Lack:
    """What a skip's reason says is missing; the reason itself where it is none of the above."""
    for lack in LACKS:
        if re.search(lack.reason, reason):
            return lack
    if package := PACKAGE.search(reason):
        name = (package[1] or package[2]).partition(".")[0]
        return Lack("", f"the package {name}", "what is compared with it", f"pip install {name}")
    return Lack("", reason, "", "")


def untested(skips: Iterable[tuple[str, str]]) -> list[str]:
    """Lines about (name of a test or of a whole file, reason); the last one has them all. Nothing where nothing was skipped."""
    tests, files = Counter[Lack](), Counter[Lack]()
    for name, reason in skips:
        (tests if "::" in name else files)[lack_of(reason.removeprefix("Skipped: "))] += 1
    order = {lack.name: at for at, lack in enumerate(LACKS)}
    lacks = sorted(tests.keys() | files.keys(), key=lambda each: (order.get(each.name, len(order)), each.name))
    if not lacks:
        return []
    lines = [_line(lack, tests[lack], files[lack]) for lack in lacks]
    names = ", ".join(f"{lack.name} ({_count(tests[lack], files[lack])})" for lack in lacks)
    return [*lines, f"NOT TESTED HERE: {_count(tests.total(), files.total())}, for want of {names}"]


def _line(lack: Lack, tests: int, files: int) -> str:
    what = f": {lack.tested}" if lack.tested else ""
    fix = f"; fix: {lack.fix}" if lack.fix else ""
    return f"without {lack.name} {_count(tests, files)} did not run{what}{fix}"


def _count(tests: int, files: int) -> str:
    counts = [f"{n} {name}{'' if n == 1 else 's'}" for n, name in ((tests, "test"), (files, "whole file")) if n]
    return " and ".join(counts)
