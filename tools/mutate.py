"""Runs the fast tests of a room on each of its mutants (mutants.py), and says which mutants no test noticed.

    python tools/mutate.py --room dedup --sample 200 --jobs 16 --out survivors.jsonl
    python tools/mutate.py ingot/data/dedup --tests tests/data/dedup --jobs 16
    python tools/mutate.py --all --sample 150 --minutes 2

First the tests run once without a fault, and it is noted which test runs which lines: files that cannot be imported and tests
that fail or are skipped here are left out, by name; if none passes, nothing is tried. Then, for each mutant, the tests that run
its line, up to the first failure; if all pass, the tests that start processes, since what these do was not watched; and all tests
where importing runs the line. A mutant is dead when a test fails, when the tests cannot be imported, or when they take several
times as long (mutant_tests.py). A test that fails on a mutant must pass by itself without it.

tools/mutants_explained.txt names mutants that change nothing a user could notice, each with its reason: they are not tried.

Each of `--jobs` works in its own copy of the tree. Only the standard library and pytest are needed, and no network.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from mutant_tests import Fault, Result, Slot, preload, run_baseline, try_all
from mutants import mutants

ROOT = Path(__file__).resolve().parent.parent
PRELOAD = (
    "numpy torch torch._dynamo pyarrow.parquet pydantic yaml safetensors tokenizers jinja2 numba rich sympy scipy.stats"
)

Explained = tuple[str, str, str]  # file, line, the mutant's line

# The modules of a room, and the tests that are to notice a fault in them.
ROOMS: dict[str, tuple[str, str]] = {
    "verifiers": (
        "ingot/envs/verifiers",
        "tests/envs/verifiers",
    ),
    "losses": (
        "ingot/post/algorithms ingot/post/rewards ingot/post/rl/stamping.py ingot/train/losses",
        "tests/train/losses tests/train/test_loop.py tests/train/test_feed.py tests/post/test_returns.py"
        " tests/post/test_prefer_losses.py tests/post/test_published_settings.py tests/post/test_reward.py"
        " tests/post/test_reference.py tests/post/rl/test_rl.py"
        " tests/post/rl/test_source.py tests/post/rl/test_peer.py tests/post/rl/test_variants_peer.py"
        " tests/post/rl/test_ppo_peer.py tests/post/test_prefer_peer.py tests/post/distill/test_distill.py"
        " tests/post/data/test_pairs.py"
        " tests/post/rl/test_spurious.py tests/post/rl/test_skip_zero_advantage.py tests/post/rl/test_failures.py",
    ),
    "order": (
        "ingot/tokens/order.py ingot/tokens/permutation.py ingot/tokens/mixture.py ingot/tokens/phases.py"
        " ingot/tokens/packing.py ingot/tokens/pack_index.py ingot/tokens/packed.py ingot/tokens/loader.py"
        " ingot/tokens/prefetch.py ingot/tokens/batch.py ingot/tokens/windows.py ingot/tokens/shards.py ingot/train/feed.py"
        " ingot/train/batches.py",
        "tests/tokens/test_order.py tests/tokens/test_permutation.py tests/tokens/test_mixture.py tests/tokens/test_phases.py"
        " tests/tokens/test_packing.py tests/tokens/test_pack_index.py tests/tokens/test_packed.py tests/tokens/test_loader.py"
        " tests/tokens/test_prefetch.py tests/tokens/test_shards.py tests/tokens/test_worlds.py tests/tokens/test_tokenize.py"
        " tests/tokens/test_windows.py"
        " tests/tokens/test_metadata.py tests/tokens/test_constant_memory.py tests/train/test_feed.py"
        " tests/train/parallel/test_pack_index.py",
    ),
    "dedup": (
        "ingot/data/steps/exact_dedup ingot/data/steps/near_dedup ingot/data/steps/semantic_dedup"
        " ingot/data/steps/substring_dedup",
        "tests/data/dedup tests/data/dedup_substring",
    ),
    "checkpoints": (
        "ingot/checkpoints ingot/train/saving",
        "tests/checkpoints tests/train/saving",
    ),
    "statistics": (
        "ingot/evals/scores ingot/evals/verdict.py ingot/evals/bases/spread.py ingot/evals/suites/alpaca/length_control.py",
        "tests/evals/scores tests/evals/test_verdict.py tests/evals/suites/test_length_control.py tests/lab/test_compare.py",
    ),
}


def main() -> int:
    """Returns 1 when the share of dead mutants of a room is below `--least`."""
    options = read_options()
    rooms = {name: ROOMS[name] for name in (ROOMS if options.all else [options.room] if options.room else [])}
    if options.modules:
        rooms["chosen"] = (" ".join(options.modules), " ".join(options.tests or ["tests"]))
    preload(options.preload, options.root)
    shares = []
    explained = read_explained(options.explained)
    with tempfile.TemporaryDirectory(prefix="mutate-") as place, Path(options.out).open("w", encoding="utf-8") as out:
        for name, (modules, tests) in rooms.items():
            slots = [Slot(Path(place) / name / str(number)).copy(options.root) for number in range(options.jobs)]
            try:
                shares.append(run_room(name, modules.split(), tests.split(), slots, options, explained, out))
            finally:
                for slot in slots:
                    slot.end()
    return int(min(shares) < options.least)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", help="files or folders with the code, from the root")
    parser.add_argument("--tests", nargs="*", help="files or folders with their tests; all, if not given")
    parser.add_argument("--room", choices=ROOMS)
    parser.add_argument("--all", action="store_true", help="all rooms, one after the other")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--sample", type=int, help="at most this many mutants of each room, at random")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--minutes", type=float, default=1e6, help="begin no mutant of a room later, counted from its first"
    )
    parser.add_argument("--again", type=Path, help="only the mutants that survived in this file of an earlier run")
    parser.add_argument("--least", type=float, default=0.95, help="the share that has to die")
    parser.add_argument("--out", default="survivors.jsonl")
    parser.add_argument("--preload", default=PRELOAD, help="modules that all processes share, as far as installed")
    parser.add_argument("--explained", type=Path, default=ROOT / "tools" / "mutants_explained.txt")
    parser.add_argument("--root", type=Path, default=ROOT)
    options = parser.parse_args()
    options.root = options.root.resolve()
    if not (options.modules or options.room or options.all):
        parser.error("which modules? name files, or --room, or --all")
    return options


def run_room(
    name: str,
    modules: list[str],
    tests: list[str],
    slots: list[Slot],
    options: argparse.Namespace,
    explained: set[Explained],
    out: TextIO,
) -> float:
    """Try the mutants of a room, print and write what became of them; returns the share that died."""
    files = python_files(options.root, modules)
    found = [fault for file in files for fault in faults_of(options.root, file)]
    for stale in sorted({each for each in explained if each[0] in files} - {key_of(fault) for fault in found}):
        print(f"explained, but no such mutant: {' | '.join(stale)}")
    again = read_again(options.again) if options.again else None
    faults = [fault for fault in found if key_of(fault) not in explained and (again is None or key_of(fault) in again)]
    chosen = random.Random(options.seed).sample(faults, min(options.sample or len(faults), len(faults)))
    print(
        f"{name}: {len(faults)} mutants, {len(found) - len(faults)} others are explained; first the tests without a fault",
        flush=True,
    )
    baseline = run_baseline(slots, sorted({fault.file for fault in faults}), tests)
    print(f"{name}: {len(baseline.seconds)} tests pass in {sum(baseline.seconds.values()):.0f} s", flush=True)
    for left_out in baseline.left_out:
        print(f"    left out, for without a fault it does not pass: {left_out}")
    known, until = len(baseline.left_out), time.monotonic() + 60 * options.minutes
    ends: dict[str, Counter[str]] = {}
    for result in try_all(chosen, baseline, slots, until):
        ends.setdefault(result.fault.file, Counter())[result.end] += 1
        if result.end == "survived":
            tell(name, result, out)
    for left_out in baseline.left_out[known:]:
        print(f"    left out: {left_out}")
    return print_table(name, ends, len(chosen), len(faults), out)


def key_of(fault: Fault) -> Explained:
    return fault.file, fault.mutant.before, fault.mutant.after


def read_explained(file: Path) -> set[Explained]:
    """The mutants of a list: a line with the file, then for each the line of code, the mutant's, and why no test can notice it.

    path/from/the/root.py
    - the line
    + the mutant's line
    = reason
    """
    found: set[Explained] = set()
    path = before = after = ""
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines() if file.exists() else [], 1):
        match line[:2]:
            case "- ":
                before = line[2:]
            case "+ ":
                after = line[2:]
            case "= " if path and before and after and line[2:].strip():
                found.add((path, before, after))
                after = ""
            case "" | "# ":
                pass
            case _ if line.endswith(".py"):
                path, before = line, ""
            case _:
                raise SystemExit(
                    f"{file}:{number}: not a file, '- line', '+ mutant' or '= reason' in this order: {line}"
                )
    return found


def read_again(file: Path) -> set[Explained]:
    """The survivors that an earlier run wrote."""
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return {(line["file"], line["before"], line["after"]) for line in lines if "before" in line}


def python_files(root: Path, paths: list[str]) -> list[str]:
    if missing := [path for path in paths if not (root / path).exists()]:
        raise SystemExit(f"not in {root}: {', '.join(missing)}")
    files = [
        file for path in paths for file in ([root / path] if path.endswith(".py") else (root / path).rglob("*.py"))
    ]
    return sorted({file.relative_to(root).as_posix() for file in files})


def faults_of(root: Path, file: str) -> list[Fault]:
    original = (root / file).read_text(encoding="utf-8")
    return [Fault(file, mutant, original) for mutant in mutants(original)]


def tell(room: str, result: Result, out: TextIO) -> None:
    """A survivor, on the screen and as a line of the file."""
    fault, mutant = result.fault, result.fault.mutant
    print(
        f"survived  {fault.file}:{mutant.line}  {mutant.kind}\n    - {mutant.before}\n    + {mutant.after}", flush=True
    )
    about = asdict(mutant)
    about.pop("source")
    line = {"room": room, "file": fault.file, **about, "tests": result.tests, "seconds": round(result.seconds, 1)}
    out.write(json.dumps(line) + "\n")
    out.flush()


def print_table(room: str, ends: dict[str, Counter[str]], chosen: int, of: int, out: TextIO) -> float:
    """How many mutants of each file died; the room's sums are also the last of its lines in the file."""
    width = max((len(file) for file in ends), default=0)
    print(f"\n{'':{width}}  tried  failed  too slow  survived    dead")
    both = Counter[str]()
    for file, counts in sorted(ends.items()):
        both += counts
        print(f"{file:{width}}  {row(counts)}")
    print(
        f"{room:{width}}  {row(both)}\n{room}: {both.total()} of {chosen} chosen mutants were tried, of {of}\n",
        flush=True,
    )
    share = 1 - both["survived"] / max(both.total(), 1)
    out.write(json.dumps({"room": room, "tried": both.total(), "of": of, **both, "dead": round(share, 4)}) + "\n")
    return share


def row(counts: Counter[str]) -> str:
    dead = 1 - counts["survived"] / counts.total() if counts.total() else 0.0
    return (
        f"{counts.total():5}  {counts['killed']:6}  {counts['timeout']:8}  {counts['survived']:8}  {100 * dead:5.1f}%"
    )


if __name__ == "__main__":
    sys.exit(main())
