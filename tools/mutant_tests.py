"""Runs tests on mutants, many at a time, in processes that start in milliseconds.

Each runs in a slot: a copy of the code and the tests, with its own folder of compiled kernels. It is forked from this
process, which has imported what is slow to import and nothing of ours.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import Any

from mutants import Mutant

LONGER = 5  # times the time of the tests without a fault, and what every start takes:
START_SECONDS = 60.0
BASELINE_SECONDS = 1800.0
MEMORY = 16 << 30  # bytes that one process may hold, and write to a file: a fault may do either without end
FILE = 4 << 30
PROCESSOR = 1800  # seconds; a fault that never ends does not outlive this tool for long, if it is killed
PASSED, NO_TESTS = 0, 5  # pytest's exit codes


@dataclass(frozen=True)
class Fault:
    """A mutant of a file, named from the root."""

    file: str
    mutant: Mutant
    original: str


@dataclass(frozen=True)
class Result:
    fault: Fault
    end: str  # killed, timeout, survived
    tests: int
    seconds: float


@dataclass(frozen=True)
class Baseline:
    """Without a fault: the seconds of each test that passes, and which of them run a line."""

    seconds: dict[str, float]
    reaching: dict[tuple[str, int], set[str]]
    left_out: list[str]


def preload(names: str, root: Path) -> None:
    """Import what takes seconds in the process that all others are forked from. A CPU, one thread: as in CI."""
    sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != root]
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", OMP_WAIT_POLICY="passive")
    os.environ.update(CUDA_VISIBLE_DEVICES="", TRITON_INTERPRET="1")
    for name in names.split():
        if find_spec(name.split(".")[0]):
            import_module(name)


def copy_of_tree(root: Path, slot: Path) -> Path:
    """A slot with copies of all folders that hold Python files, and links to all else in the root and to ../shared."""
    tree = slot / "tree"
    tree.mkdir(parents=True)
    for entry in root.iterdir():
        if entry.name.startswith("."):
            continue
        if entry.is_dir() and next(entry.rglob("*.py"), None):
            shutil.copytree(entry, tree / entry.name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
        else:
            (tree / entry.name).symlink_to(entry)
    if (root.parent / "shared").is_dir():
        (slot / "shared").symlink_to(root.parent / "shared")
    return slot


def run_baseline(slots: list[Path], files: list[str], tests: list[str]) -> Baseline:
    """All tests once, watched; afterwards every slot has the kernels that they compiled."""
    found = slots[0] / "baseline.json"
    found.unlink(missing_ok=True)
    process = fork_tests(slots[0], tests, lambda tree: Watch(tree, files, found))
    wait([process], time.monotonic() + BASELINE_SECONDS)
    kill(process)
    if not found.exists():
        output = (slots[0] / "output").read_text(encoding="utf-8", errors="replace")
        raise SystemExit(f"{output[-4000:]}\nthe tests do not run without a fault")
    seconds, lines, left_out = json.loads(found.read_text(encoding="utf-8"))
    reaching: dict[tuple[str, int], set[str]] = {}
    for test, file, line in lines:
        if test in seconds:
            reaching.setdefault((file, line), set()).add(test)
    for slot in slots[1:]:
        if (slots[0] / "cache").is_dir():
            shutil.copytree(slots[0] / "cache", slot / "cache", dirs_exist_ok=True)
    return Baseline(seconds, reaching, left_out)


@dataclass(frozen=True)
class Attempt:
    """Tests that run on a mutant in a slot, and those that run on it when these pass."""

    fault: Fault
    slot: Path
    process: int
    deadline: float
    others: set[str]
    began: float
    tests: int


def try_all(
    faults: list[Fault], baseline: Baseline, tests: list[str], slots: list[Path], until: float
) -> Iterator[Result]:
    """What becomes of every mutant, in the order in which it is known."""
    waiting, free = faults[::-1], list(slots)
    running: list[Attempt] = []

    def begin(fault: Fault, slot: Path, wanted: set[str], others: set[str]) -> Attempt:
        files = sorted({test.partition("::")[0] for test in wanted})
        limit = START_SECONDS + LONGER * sum(baseline.seconds[test] for test in wanted)
        process = fork_tests(slot, files, lambda _: Only(wanted))
        return Attempt(fault, slot, process, time.monotonic() + limit, others, time.monotonic(), len(wanted))

    while True:
        while waiting and free and time.monotonic() < until:
            fault, slot = waiting.pop(), free.pop()
            write(slot / "tree" / fault.file, fault.mutant.source)
            near = baseline.reaching.get((fault.file, fault.mutant.line), set())
            far = set(baseline.seconds) - near
            running.append(begin(fault, slot, near or far, far if near else set()))
        if not running:
            return
        codes = wait([each.process for each in running], min(each.deadline for each in running))
        for attempt in running[:]:
            code = codes.get(attempt.process)
            late = code is None and time.monotonic() >= attempt.deadline
            if code is None and not late:
                continue
            running.remove(attempt)
            kill(attempt.process)
            passed = code in (PASSED, NO_TESTS)
            if passed and attempt.others:
                again = begin(attempt.fault, attempt.slot, attempt.others, set())
                running.append(replace(again, began=attempt.began, tests=attempt.tests + again.tests))
                continue
            write(attempt.slot / "tree" / attempt.fault.file, attempt.fault.original)
            free.append(attempt.slot)
            end = "survived" if passed else "timeout" if late else "killed"
            yield Result(attempt.fault, end, attempt.tests, time.monotonic() - attempt.began)


_written = int(time.time())


def write(path: Path, text: str) -> None:
    """Python knows a compiled file by the second and the size of its source: no two versions have the same second."""
    global _written
    _written += 1
    path.write_text(text, encoding="utf-8")
    os.utime(path, (_written, _written))


def fork_tests(slot: Path, tests: list[str], plugin: Callable[[Path], object]) -> int:
    """A process that runs pytest in the slot's copy of the tree, and leads a group with all that the tests start."""
    shutil.rmtree(slot / "tmp", ignore_errors=True)
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        os.setsid()
        output = os.open(slot / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for stream, file in enumerate((os.open(os.devnull, os.O_RDONLY), output, output)):
            os.dup2(file, stream)
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE, FILE))
        resource.setrlimit(resource.RLIMIT_CPU, (PROCESSOR, PROCESSOR))
        tree = slot / "tree"
        os.chdir(tree)
        sys.path.insert(0, str(tree))
        os.environ.update(PYTHONPATH=str(tree), XDG_CACHE_HOME=str(slot / "cache"))
        import pytest

        options = ["-x", "-m", "not slow", "-p", "no:cacheprovider", f"--basetemp={slot / 'tmp'}"]
        options += ["--hypothesis-seed=0"] if find_spec("hypothesis") else []
        code = pytest.main([*tests, *options], plugins=[plugin(tree), TorchWasImportedBefore()])
        sys.stdout.flush()
    finally:
        os._exit(int(code))


def wait(processes: list[int], deadline: float) -> dict[int, int]:
    """The exit codes of those that have ended: at least one, or none at the deadline."""
    while True:
        ended = {}
        for process in processes:
            found, status = os.waitpid(process, os.WNOHANG)
            if found:
                ended[process] = os.waitstatus_to_exitcode(status)
        if ended or time.monotonic() >= deadline:
            return ended
        time.sleep(0.01)


def kill(process: int) -> None:
    """End a process, and all that it left behind."""
    with suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(process, 0)


class TorchWasImportedBefore:
    """tests/conftest.py replaces a name of multiprocessing that torch takes when it is imported."""

    def pytest_collection(self) -> None:
        import multiprocessing

        if torchs := sys.modules.get("torch.multiprocessing"):
            vars(torchs)["get_context"] = multiprocessing.get_context


class Only:
    """Runs some tests, and leaves the others out."""

    def __init__(self, tests: set[str]) -> None:
        self.tests = tests

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if item.nodeid in self.tests]


class Watch:
    """Notes how long each test takes, and which lines of some files it runs in this process."""

    def __init__(self, tree: Path, files: list[str], found: Path) -> None:
        self.names = {str(tree / file): file for file in files}
        self.found = found
        self.test = ""
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()
        self.lines: set[tuple[str, str, int]] = set()

    def pytest_configure(self, config: Any) -> None:
        config.option.maxfail = 0

    def call(self, frame: FrameType, event: str, argument: object) -> Any:
        return self.line if frame.f_code.co_filename in self.names else None

    def line(self, frame: FrameType, event: str, argument: object) -> Any:
        self.lines.add((self.test, self.names[frame.f_code.co_filename], frame.f_lineno))
        return self.line

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        import threading

        self.test = nodeid
        sys.settrace(self.call)
        threading.settrace(self.call)

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if not report.passed:
            self.failed.add(report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        if not report.passed:
            self.failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        sys.settrace(None)
        passed = {test: seconds for test, seconds in self.seconds.items() if test not in self.failed}
        self.found.write_text(json.dumps([passed, sorted(self.lines), sorted(self.failed)]), encoding="utf-8")
