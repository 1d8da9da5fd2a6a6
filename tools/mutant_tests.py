"""Runs tests on mutants, many at a time, in processes that start in milliseconds.

Each slot is a copy of the code and the tests with its own folder of compiled kernels, and a process that has collected the tests
(mutant_room.py). Most mutants are functions that importing the tests does not call: a fork of that process gets their new code,
and the file with it. Where importing ran the line, or numba compiles it, a fork of this process, which has imported what is slow
to import and nothing of ours, imports and collects anew.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mutant_room import NOT_BEGUN, Only, Room, exit_code, kill, pairs, pytest_in
from mutants import Mutant

LONGER = 3  # times the time of a test without a fault, here in processor time, and what every test may take:
FORK_SECONDS = 3.0
START_SECONDS = 60.0  # and in seconds of the clock twice as much, and what every start takes
COLLECT_SECONDS = 600.0
BASELINE_SECONDS = 1800.0
PASSED, NO_TESTS = 0, 5  # pytest's exit codes


@dataclass(frozen=True)
class Fault:
    """A mutant of a file, named from the root."""

    file: str
    mutant: Mutant
    original: str

    @property
    def lines(self) -> set[tuple[str, int]]:
        """Those of the statement: Python may count a line of it under another one."""
        return {(self.file, line) for line in range(self.mutant.first, self.mutant.last + 1)}


@dataclass(frozen=True)
class Result:
    fault: Fault
    end: str  # killed, timeout, survived
    tests: int
    seconds: float


@dataclass
class Baseline:
    """Without a fault: the seconds of each test that passes, which tests run a line, and which files' tests start processes."""

    seconds: dict[str, float]
    reaching: dict[tuple[str, int], set[str]]
    processes: set[str]
    imported: set[tuple[str, int]]  # lines that run when the tests are imported
    left_out: list[str]
    alone: set[str] = field(default_factory=set)  # tests that were seen to pass by themselves

    def rounds(self, fault: Fault) -> list[list[str]]:
        """The tests that can notice a fault, the likely ones first: the next are run only when those before have passed."""
        near = self.of(fault.lines) & set(self.seconds)
        beside = self.of(place for place in self.reaching if place[0] == fault.file) & set(self.seconds)
        if not self.is_cold(fault):
            return self.in_order([near, {test for test in self.seconds if file_of(test) in self.processes}])
        return self.in_order([near, beside, set(self.seconds)])

    def is_cold(self, fault: Fault) -> bool:
        """Whether the mutant is more than new code for functions: then its tests are imported anew."""
        if fault.mutant.compiled or not fault.lines.isdisjoint(self.imported):
            return True
        both = (
            compile(source, fault.file, "exec", dont_inherit=True) for source in (fault.original, fault.mutant.source)
        )
        return any(old.co_freevars != new.co_freevars for old, new in pairs(*both))

    def of(self, places: Iterable[tuple[str, int]]) -> set[str]:
        return {test for place in places for test in self.reaching.get(place, ())}

    def in_order(self, rounds: list[set[str]]) -> list[list[str]]:
        """No test twice; files whose tests are quick come first, tests of a file stay together."""
        found: list[list[str]] = []
        done: set[str] = set()
        for wanted in rounds:
            files: dict[str, list[str]] = {}
            for test in self.seconds:
                if test in wanted and test not in done:
                    files.setdefault(file_of(test), []).append(test)
            done |= wanted
            quick = sorted(files.values(), key=lambda tests: sum(self.seconds[test] for test in tests))
            found.append([test for tests in quick for test in tests])
        return [tests for tests in found if tests]


def file_of(test: str) -> str:
    return test.partition("::")[0]


def preload(names: str, root: Path) -> None:
    """Import what takes seconds in the process that all others are forked from. A CPU, one thread: as in CI."""
    sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != root]
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", OMP_WAIT_POLICY="passive")
    os.environ.update(CUDA_VISIBLE_DEVICES="", TRITON_INTERPRET="1")
    for name in names.split():
        if find_spec(name.split(".")[0]):
            import_module(name)


class Slot:
    """A copy of the tree, the process that has collected its tests, and what is asked of it now."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.tree = place / "tree"
        self.process = 0
        self.answers = b""
        self.libraries: list[str] = []

    def copy(self, root: Path) -> Slot:
        """All folders that hold Python files; links to all else in the root and to ../shared."""
        self.tree.mkdir(parents=True)
        for entry in root.iterdir():
            if entry.name.startswith("."):
                continue
            if entry.is_dir() and next(entry.rglob("*.py"), None):
                shutil.copytree(entry, self.tree / entry.name, ignore=shutil.ignore_patterns("__pycache__", ".*"))
            else:
                (self.tree / entry.name).symlink_to(entry)
        if (root.parent / "shared").is_dir():
            (self.place / "shared").symlink_to(root.parent / "shared")
        return self

    def collect(self, files: list[str], tests: list[str]) -> dict[str, Any]:
        """Start the process; returns which lines importing the tests ran, and what could not be imported."""
        self.socket, theirs = socket.socketpair()
        self.process = os.fork()
        if not self.process:
            self.socket.close()
            pytest_in(self.place, tests, lambda tree: Room(self.place, files, theirs))
        theirs.close()
        reply = self.wait(time.monotonic() + COLLECT_SECONDS)
        if reply is None or "code" in reply:
            output = (self.place / "output").read_text(encoding="utf-8", errors="replace")
            raise SystemExit(f"{output[-4000:]}\nthe tests cannot be collected")
        return reply

    def ask(self, **request: Any) -> None:
        """The first time also to import the libraries that tests import when they run, so that no fork has to."""
        request["imports"], self.libraries = self.libraries, []
        self.socket.sendall(json.dumps(request).encode() + b"\n")

    def wait(self, deadline: float) -> dict[str, Any] | None:
        while (reply := self.poll()) is None and time.monotonic() < deadline:
            time.sleep(0.005)
        return reply

    def poll(self) -> dict[str, Any] | None:
        """The answer, once it is there; that of a process that ended is its exit code."""
        with suppress(BlockingIOError):
            self.answers += self.socket.recv(1 << 20, socket.MSG_DONTWAIT)
        line, found, self.answers = self.answers.partition(b"\n")
        if found:
            return dict(json.loads(line))
        self.answers = line
        if (code := exit_code(self.process)) is not None:
            return {"code": code, "failed": None}
        return None

    def end(self) -> None:
        if self.process:
            self.socket.close()
            kill(self.process)

    def passes_alone(self, test: str, seconds: float) -> bool:
        limit = START_SECONDS + LONGER * seconds
        self.ask(tests=[test], seconds=limit, processor={test: limit})
        reply = self.wait(time.monotonic() + 2 * limit)
        return bool(reply and reply["code"] in (PASSED, NO_TESTS))


def run_baseline(slots: list[Slot], files: list[str], tests: list[str]) -> Baseline:
    """All tests once, watched; afterwards every slot has the kernels that they compiled."""
    collected = slots[0].collect(files, tests)
    found = slots[0].place / "baseline.json"
    found.unlink(missing_ok=True)
    slots[0].ask(tests=collected["tests"], seconds=BASELINE_SECONDS, watch=str(found))
    slots[0].wait(time.monotonic() + 2 * BASELINE_SECONDS)
    if not found.exists():
        output = (slots[0].place / "output").read_text(encoding="utf-8", errors="replace")
        raise SystemExit(f"{output[-4000:]}\nthe tests do not run without a fault")
    seconds, lines, failed, processes, libraries = json.loads(found.read_text(encoding="utf-8"))
    if not seconds:
        broken = ", ".join([*collected["broken"], *failed][:9])
        raise SystemExit(f"no test passes without a fault, so that every mutant would count as dead: {broken or tests}")
    reaching: dict[tuple[str, int], set[str]] = {}
    for test, file, line in lines:
        if test in seconds:
            reaching.setdefault((file, line), set()).add(test)
    for slot in slots[1:]:
        if (slots[0].place / "cache").is_dir():
            shutil.copytree(slots[0].place / "cache", slot.place / "cache", dirs_exist_ok=True)
        slot.collect(files, tests)
    for slot in slots:
        slot.libraries = libraries
    imported = {(file, line) for file, line in collected["imported"]}
    left_out = [f"{file} (cannot be imported)" for file in collected["broken"]] + failed
    return Baseline(seconds, reaching, set(processes), imported, left_out)


@dataclass
class Attempt:
    """A fault in a slot: the tests that run on it, and those that run when these pass."""

    fault: Fault
    slot: Slot
    rounds: list[list[str]]
    process: int | None = None  # of a cold start; else the slot's process was asked
    deadline: float = 0.0
    began: float = field(default_factory=time.monotonic)
    tests: int = 0


def try_all(faults: list[Fault], baseline: Baseline, slots: list[Slot], until: float) -> Iterator[Result]:
    """What becomes of every mutant, in the order in which it is known."""
    waiting, free = faults[::-1], list(slots)
    running: list[Attempt] = []
    while True:
        while waiting and free and time.monotonic() < until:
            fault = waiting.pop()
            if not (rounds := baseline.rounds(fault)):  # no test runs the line
                yield Result(fault, "survived", 0, 0.0)
                continue
            slot = free.pop()
            write(slot.tree / fault.file, fault.mutant.source)
            running.append(Attempt(fault, slot, rounds))
            begin(running[-1], baseline)
        if not running:
            return
        time.sleep(0.005)
        for attempt in running[:]:
            reply = answer_of(attempt)
            if reply is None:
                continue
            passed, late = reply["code"] in (PASSED, NO_TESTS), reply["code"] is None
            if passed and attempt.rounds:
                begin(attempt, baseline)
                continue
            slot, fault = attempt.slot, attempt.fault
            write(slot.tree / fault.file, fault.original)
            if (test := reply["failed"]) and test in baseline.seconds and test not in baseline.alone:
                if not slot.passes_alone(test, baseline.seconds[test]):
                    baseline.left_out.append(f"{test} (fails when it runs alone)")
                    del baseline.seconds[test]
                    write(slot.tree / fault.file, fault.mutant.source)
                    attempt.rounds = baseline.rounds(fault)
                    begin(attempt, baseline)
                    continue
                baseline.alone.add(test)
            running.remove(attempt)
            free.append(slot)
            end = "survived" if passed else "timeout" if late else "killed"
            yield Result(fault, end, attempt.tests, time.monotonic() - attempt.began)


def begin(attempt: Attempt, baseline: Baseline) -> None:
    """Run the next tests of an attempt."""
    slot, fault, tests = attempt.slot, attempt.fault, attempt.rounds.pop(0)
    attempt.tests += len(tests)
    cold = baseline.is_cold(fault)
    limit = START_SECONDS + 2 * LONGER * sum(baseline.seconds[test] for test in tests)
    attempt.deadline = time.monotonic() + limit
    if not cold:
        attempt.process = None
        source = {"file": fault.file, "original": fault.original, "mutant": fault.mutant.source}
        processor = {test: FORK_SECONDS + LONGER * baseline.seconds[test] for test in tests}
        slot.ask(tests=tests, seconds=limit, processor=processor, **source)
        return
    (slot.place / "failed").unlink(missing_ok=True)
    attempt.process = os.fork()
    if not attempt.process:
        files = sorted({file_of(test) for test in tests})
        pytest_in(slot.place, files, lambda _: Only(set(tests), slot.place / "failed"))


def answer_of(attempt: Attempt) -> dict[str, Any] | None:
    """What became of the tests that run; a `code` of None if they take too long."""
    if attempt.process is None:
        reply = attempt.slot.poll()
        if reply is None and time.monotonic() > attempt.deadline + START_SECONDS:
            raise SystemExit(f"the process that has collected the tests does not answer: {attempt.slot.place}")
        if reply and reply["code"] == NOT_BEGUN:
            raise SystemExit(f"no mutant was made of {attempt.fault.file}:{attempt.fault.mutant.line}")
        return reply
    code = exit_code(attempt.process)
    if code is None and time.monotonic() < attempt.deadline:
        return None
    kill(attempt.process)
    failed = attempt.slot.place / "failed"
    return {"code": code, "failed": failed.read_text(encoding="utf-8") if failed.exists() else None}


_written = int(time.time())


def write(path: Path, text: str) -> None:
    """Python knows a compiled file by the second and the size of its source: no two versions have the same second."""
    global _written
    _written += 1
    path.write_text(text, encoding="utf-8")
    os.utime(path, (_written, _written))
