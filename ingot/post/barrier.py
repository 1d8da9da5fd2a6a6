"""Long work of several processes, each at its own pace, with a barrier every few seconds.

Between two steps of its work a process calls `attend`, which does nothing until BARRIER_SECONDS have passed since the last
barrier. A process that has finished waits at the others' barriers until all have. At a barrier three counts are summed: processes
that were asked to stop, that have failed, that still work. All processes get the same sums, so they decide the same at the same
barrier: go on, stop, give up, or end.

Barriers are in time, not in items: work is not cut into pieces because of them, so an engine stays full and computes in the
batches that it would have by itself. A barrier waits for one step of the slowest process, not for its whole share, so the
length of the work does not count against the timeout of the group (train/saving/ranks.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from ingot.train.saving.ranks import Ranks
from ingot.workspace.errors import Interrupted
from ingot.workspace.interrupt import StopSignal

BARRIER_SECONDS = 5.0

Between = Callable[[], None]
"""What long work calls between two steps. It may raise, and the work is given up then."""
Value = TypeVar("Value")


class GivenUp(Exception):
    """Another process has failed."""


def work_together(
    ranks: Ranks, stop: StopSignal, work: Callable[[Between], Value], alive: Callable[[], None] = lambda: None
) -> Value | None:
    """What `work` returns in this process, when it is done in all; called by all. `alive` is called between its steps, and while
    it waits for the others.

    `Interrupted` in all of them if one was asked to stop. Where one fails, its error is raised there, and the others get None:
    they have given up.
    """
    if ranks.group is None:

        def between() -> None:
            alive()
            stop.check()

        return work(between)
    barriers = _Barriers(ranks, stop, alive)
    try:
        value = work(barriers.attend)
        while barriers.hold(working=False):
            pass
    except Interrupted:
        raise
    except GivenUp:
        return None
    except Exception:
        with suppress(GivenUp):
            barriers.hold(working=False, failed=True)
        raise
    return value


class _Barriers:
    """The barriers of one piece of work."""

    def __init__(self, ranks: Ranks, stop: StopSignal, alive: Callable[[], None]) -> None:
        self.ranks, self.stop, self.alive = ranks, stop, alive
        self.last = time.monotonic()

    def attend(self) -> None:
        """Wait for the others, if it is time."""
        self.alive()
        if time.monotonic() - self.last >= BARRIER_SECONDS:
            self.hold(working=True)

    def hold(self, *, working: bool, failed: bool = False) -> bool:
        """Wait for the others now; whether any of them still works."""
        failures, stops, workers = self.ranks.totals(failed, self.stop.requested, working)
        self.last = time.monotonic()
        self.alive()
        if failures:
            raise GivenUp
        if stops:
            raise Interrupted
        return workers > 0
