"""Runs content-addressed tasks: everything that curation computes is one.

    work.run("signatures", signatures, items, options)   ->   one `Done` an item, in the order of the items
    work.run_all([Phase("documents", …), Phase("removed", …)])   the same for several that do not need one another

A task is a function at the top of a module, `function(folder, item, options) -> report`, that writes files into
`folder` (temporary, renamed when the function returns) and returns a small JSON-like report. Its key is the hash of the
name, the function, the version, the options and `item.key`; a task whose key is already on disk is not run again. So a
run that was killed goes on where it was, and a changed threshold computes only what depends on it.

Where tasks run is a pool's business (pool.py). A task whose process dies is run again, `ATTEMPTS` times in all; an error
that a task raises ends the run. Large items begin first, so that the last task to end is a small one.

Invariant: a task's files depend on its key only, never on the worker, the order or the number of processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ingot.data.engine.pool import PoolCall, SerialPool, WorkPool
from ingot.data.engine.store import REPORT, FinishedTask, commit, discard, finished, sweep
from ingot.workspace.config import content_hash
from ingot.workspace.errors import ArtifactError, DataError
from ingot.workspace.interrupt import StopSignal
from ingot.workspace.progress import Progress

__all__ = ["ATTEMPTS", "FinishedTask", "Work", "WorkItem", "WorkPhase", "WorkerJob"]

ATTEMPTS = 3
SMALL_BYTES = 1_000_000  # work of so many bytes in all is done here, before a process would have started
POLL_SECONDS = 0.2
MEGABYTE = 1_000_000
SHOWN_AFTER_SECONDS = 2.0  # shorter phases pass without a line


class WorkItem(Protocol):
    """What a task works on: anything that can be pickled and has a key that names its content.

    An item with an attribute `bytes` tells how much work it is.
    """

    @property
    def key(self) -> str: ...


Function = Callable[[Path, Any, Any], dict[str, Any]]


@dataclass(frozen=True)
class WorkPhase:
    """A function and the items that it is run on. `options` must be JSON-like or a config."""

    name: str
    function: Function
    items: Sequence[WorkItem]
    options: Any = None
    version: int = 1

    def targets(self, folder: Path) -> list[Path]:
        """Where the results go: named by what they are made from."""
        called = f"{self.function.__module__}.{self.function.__qualname__}"
        made_of = [self.name, called, self.version, content_hash(self.options, 24)]
        return [folder / self.name / content_hash([*made_of, item.key], 24) for item in self.items]


@dataclass(frozen=True)
class WorkerJob:
    """Something to be done by a worker that commits its results itself: `function(*arguments)`."""

    function: Callable[..., None]
    arguments: tuple[Any, ...]
    label: str
    bytes: int | None = None


class Work:
    """Runs tasks below `folder`. Without a pool: one after the other, in this process."""

    def __init__(
        self,
        folder: Path,
        progress: Progress | None = None,
        stop: StopSignal | None = None,
        pool: WorkPool | None = None,
        *,
        stall_seconds: float = 3600.0,
        check_contents: bool = False,
    ) -> None:
        self.folder = folder
        self.progress = progress or Progress()
        self.stop = stop or StopSignal()
        self.pool = pool or SerialPool()
        self.here = SerialPool()
        self.stall_seconds = stall_seconds
        self.check_contents = check_contents
        self.tasks_run = 0
        self.seconds = 0.0  # processor time of all tasks that were asked for, also those that were done before
        sweep(folder)

    def run(
        self, name: str, function: Function, items: Sequence[WorkItem], options: Any = None, *, version: int = 1
    ) -> list[FinishedTask]:
        """Run `function` on every item that was not done before."""
        [done] = self.run_all([WorkPhase(name, function, items, options, version)])
        return done

    def run_all(self, phases: Sequence[WorkPhase]) -> list[list[FinishedTask]]:
        """Run phases that do not need one another at the same time; the results of each."""
        targets = [phase.targets(self.folder) for phase in phases]
        jobs = [
            WorkerJob(
                run_task,
                (target, phase.function, item, phase.options),
                f"{phase.name} {item.key}",
                getattr(item, "bytes", None),
            )
            for phase, folders in zip(phases, targets, strict=True)
            for target, item in zip(folders, phase.items, strict=True)
            if self.result(target) is None
        ]
        self.execute(", ".join(phase.name for phase in phases), jobs)
        return [[self.needed(target) for target in folders] for folders in targets]

    def expect(self, size: int) -> None:
        """Announce so many bytes of work: processes start now, while the first work is done here."""
        if size >= SMALL_BYTES:
            self.pool.start()

    def result(self, target: Path) -> FinishedTask | None:
        """The result in `target`, if it is whole. A damaged result is named and removed."""
        done = finished(target, contents=self.check_contents)
        if done is None and target.exists():
            self.progress.say(f"damaged, computed again: {target}")
            discard(target)
        return done

    def needed(self, target: Path) -> FinishedTask:
        """The result that was just computed."""
        done = finished(target)
        if done is None:
            raise ArtifactError("a result is gone that was just computed", place=str(target / REPORT), fix="run again")
        self.seconds += done.seconds
        return done

    def execute(self, name: str, jobs: Sequence[WorkerJob]) -> None:
        """Do all jobs; returns when they are done. An error of one ends it all."""
        if not jobs:
            self.stop.check()
            return
        sizes = [job.bytes for job in jobs if job.bytes is not None]
        known = len(sizes) == len(jobs)
        small = (known and sum(sizes) < SMALL_BYTES) or (len(jobs) == 1 and not self.pool.running)
        pool = self.here if small else self.pool
        waiting = sorted(range(len(jobs)), key=lambda number: (jobs[number].bytes or 0, -number))  # taken from the end
        attempts = [0] * len(jobs)
        under_way: set[int] = set()
        meter = PhaseMeter(self.progress, name, len(jobs), sum(sizes) if known else None)
        last_answer = time.monotonic()
        try:
            while waiting or under_way:
                self.stop.check()
                while waiting and len(under_way) < pool.width:
                    number = waiting.pop()
                    attempts[number] += 1
                    under_way.add(number)
                    pool.submit(PoolCall(number, jobs[number].function, jobs[number].arguments))
                for answer in pool.wait(POLL_SECONDS):
                    last_answer = time.monotonic()
                    under_way.remove(answer.number)
                    if answer.error is not None:
                        answer.fail()
                    if answer.lost:
                        self._lost(jobs[answer.number], attempts[answer.number], answer.lost)
                        waiting.append(answer.number)
                        continue
                    self.tasks_run += 1
                    meter.add(jobs[answer.number].bytes or 0)
                if time.monotonic() - last_answer > self.stall_seconds:
                    self._stalled(jobs[number] for number in sorted(under_way))
        except BaseException:
            pool.close()  # what is still under way belongs to a run that has ended
            raise

    def _lost(self, job: WorkerJob, attempts: int, reason: str) -> None:
        if attempts >= ATTEMPTS:
            raise DataError(
                f"the worker {reason}, {attempts} times; the usual cause is too little memory",
                place=job.label,
                fix="free memory, use fewer `workers`, or look at the documents of this task",
            )
        self.progress.say(f"{job.label}: the worker {reason}; trying again ({attempts} of {ATTEMPTS})")

    def _stalled(self, jobs: Iterable[WorkerJob]) -> None:
        raise DataError(
            f"no task was finished in {self.stall_seconds:g} s",
            place=", ".join(job.label for job in jobs),
            fix="look at the machine's load, or raise `stall_seconds`",
        )


def run_task(target: Path, function: Function, item: Any, options: Any) -> None:
    """Carry out a task and commit what it wrote (in a worker)."""
    with commit(target) as made:
        made.report = function(made.folder, item, options)


class PhaseMeter:
    """Progress of one phase, with its rate; the display works out the time that is left."""

    def __init__(self, progress: Progress, name: str, count: int, total: int | None) -> None:
        self.progress, self.name = progress, name
        self.left, self.by_bytes = count, bool(total)
        self.total = -(-total // MEGABYTE) if total else count
        self.bytes = 0
        self.began = time.monotonic()
        progress.start(self.total, unit="MB" if self.by_bytes else "task")

    def add(self, size: int) -> None:
        """A task is done."""
        self.left -= 1
        self.bytes += size
        seconds = time.monotonic() - self.began
        if self.left == 0 and seconds < SHOWN_AFTER_SECONDS:
            return
        done = self.total - self.left
        if self.by_bytes and self.left:
            done = min(self.bytes // MEGABYTE, self.total - 1)
        rate = {"MB/s": self.bytes / MEGABYTE / max(seconds, 1e-9)} if self.by_bytes else {}
        self.progress.advance(done, at=self.name, **rate)
