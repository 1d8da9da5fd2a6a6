"""Long work of several processes, each at its own pace: every few seconds they meet, so that nobody waits long for anyone.

Between two steps of its work a process calls `attend`, which does nothing until MEETING_SECONDS have passed since the last
meeting; a process that is through with its part attends the others' meetings until all are. At a meeting three counts are added
up: who was asked to stop, who has failed, who still works. All processes get the same sums and so decide the same at the same
meeting: go on, stop, give up, or end.

Meetings are in time, not in items: work is neither cut into pieces nor arranged otherwise because of them, so that an engine
stays full and computes in the batches that it would have by itself. What a meeting waits for is a step of the slowest process,
not its part; only that, and not the length of the work, has to keep the deadline of the group (train/saving/ranks.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from ingot.train.saving.ranks import Ranks
from ingot.workspace.errors import Interrupted
from ingot.workspace.interrupt import StopSignal

MEETING_SECONDS = 5.0

Between = Callable[[], None]
"""What long work calls between two steps. It may raise, and the work is given up then."""
Value = TypeVar("Value")


class GivenUp(Exception):
    """Another process has failed."""


def work_together(ranks: Ranks, stop: StopSignal, work: Callable[[Between], Value]) -> Value | None:
    """What `work` returns in this process, when it is done in all; called by all.

    `Interrupted` in all of them if one was asked to stop. Where one fails, its error is raised there, and the others get None:
    they have given up.
    """
    if ranks.group is None:
        return work(stop.check)
    meetings = _Meetings(ranks, stop)
    try:
        value = work(meetings.attend)
        while meetings.hold(working=False):
            pass
    except Interrupted:
        raise
    except GivenUp:
        return None
    except Exception:
        with suppress(GivenUp):
            meetings.hold(working=False, failed=True)
        raise
    return value


class _Meetings:
    """The meetings of one piece of work."""

    def __init__(self, ranks: Ranks, stop: StopSignal) -> None:
        self.ranks, self.stop = ranks, stop
        self.last = time.monotonic()

    def attend(self) -> None:
        """Meet the others, if it is time."""
        if time.monotonic() - self.last >= MEETING_SECONDS:
            self.hold(working=True)

    def hold(self, *, working: bool, failed: bool = False) -> bool:
        """Meet the others now; whether anybody still works."""
        failures, stops, workers = self.ranks.totals(failed, self.stop.requested, working)
        self.last = time.monotonic()
        if failures:
            raise GivenUp
        if stops:
            raise Interrupted
        return workers > 0
