"""A pool of warm sandboxes: many programs, each in a cell of its own, without starting an interpreter for each.

    with Pool() as pool:
        outcome = pool.run(Program(source="print(6 * 7)"), Limits(seconds=5))

Any number of threads may call it; a call waits until a worker is free. A worker is replaced after `most_programs` and whenever
it dies. `run_together` runs programs that talk with each other over descriptors (`Program.links`): it takes one worker for
each, all at once, so two such calls cannot block each other.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Sequence
from functools import cache

from ingot.sandbox.levels import Isolation, Level
from ingot.sandbox.program import Limits, Outcome, Program
from ingot.sandbox.run import permitted
from ingot.sandbox.running import Running, follow
from ingot.sandbox.worker import SandboxError, SandboxWorker
from ingot.workspace.errors import IngotError

WAIT_SECONDS = 600.0  # for a free worker
MOST_PROGRAMS = 2_000  # then a worker is replaced: a leak in it cannot grow for ever


class Pool:
    """Workers that are kept. `workers` run at once; the default is one for each processor, and two at least."""

    def __init__(self, workers: int | None = None, most_programs: int = MOST_PROGRAMS) -> None:
        self.workers = workers or max(2, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2)
        self.most_programs = most_programs
        self._free: list[SandboxWorker] = []
        self._taken = 0
        self._closed = False
        self._changed = threading.Condition()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def run(self, program: Program, limits: Limits, isolation: Isolation | None = None) -> Outcome:
        """Run one program; as `run.run`, and sooner."""
        return self.run_together([program], [limits], isolation)[0]

    def run_together(
        self, programs: Sequence[Program], limits: Sequence[Limits], isolation: Isolation | None = None
    ) -> list[Outcome]:
        """Run programs at the same time until the last of them ends, or one is over a limit; then all are ended.

        Their `links` are closed here as soon as they have them.
        """
        links = [descriptor for program in programs for descriptor in program.links]
        workers: list[SandboxWorker | None] = []
        running: list[Running] = []
        try:
            levels = [permitted(limit, isolation) for limit in limits]
            workers = self._take(len(programs))
            for index, level in enumerate(levels):
                worker = _usable(workers[index], level)
                workers[index] = worker
                running.append(Running(worker, programs[index], limits[index]))
            _close(links)  # so that each program sees the end of another
            follow(running, until=running[-1])
            return [one.outcome() for one in running]
        except BaseException:
            for one in running:  # a program may still run on it
                one.worker.close()
            raise
        finally:
            _close(links)
            for one in running:
                one.close()
            self._give_back(workers)

    def close(self) -> None:
        """End all workers that are free, and each of the others when its program ends."""
        with self._changed:
            self._closed = True
            free, self._free = self._free, []
            self._changed.notify_all()
        for worker in free:
            worker.close()

    def _take(self, count: int) -> list[SandboxWorker | None]:
        """Workers, None for those that are yet to be started. Waits until there are enough."""
        if count > self.workers:
            raise IngotError(
                f"{count} programs at once in a pool of {self.workers}", place="sandbox", fix="make it larger"
            )
        end = time.monotonic() + WAIT_SECONDS
        with self._changed:
            while not self._closed and self._taken + count > self.workers:
                if not self._changed.wait(max(0.0, end - time.monotonic())):
                    raise SandboxError(
                        f"no free worker in {WAIT_SECONDS:.0f} seconds", place="sandbox", fix="use more workers"
                    )
            if self._closed:
                raise SandboxError("the pool is closed", place="sandbox", fix="make another")
            self._taken += count
            return [self._free.pop() if self._free else None for _ in range(count)]

    def _give_back(self, workers: Sequence[SandboxWorker | None]) -> None:
        worn: list[SandboxWorker] = []
        with self._changed:
            self._taken -= len(workers)
            for worker in filter(None, workers):
                usable = not self._closed and worker.alive and worker.programs < self.most_programs
                (self._free if usable else worn).append(worker)
            self._changed.notify_all()
        for worker in worn:
            worker.close()


@cache
def shared_pool() -> Pool:
    """The pool of this process, closed when it ends: verifiers and tools share its warm workers."""
    pool = Pool()
    atexit.register(pool.close)
    return pool


def _usable(worker: SandboxWorker | None, level: Level) -> SandboxWorker:
    """The worker, or a new one if it is None, dead, or at another isolation level."""
    if worker is not None and worker.alive and worker.level == level:
        return worker
    if worker is not None:
        worker.close()
    return SandboxWorker(level)


def _close(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())
