"""Makes the batches of coming steps in a thread while the current step is computed.

One daemon thread calls `produce(step)` for step after step, at most `depth` steps ahead of the one last asked for. It may
make only what does not depend on training: the order of pre-training data is a function of (seed, step), while samples of a
policy are not.

    get(s), get(s + 1), …       taken from what is ready, or waited for
    get(any other step)         what was made ahead is thrown away, and the thread goes on from that step (a rewind)
    restart(step)               the same without taking anything: for when `produce` would now give something else

`produce` never runs twice at once. Its exception is raised by the `get` of that step with the traceback of the thread; asked
for again, the step is made again. Every wait has a deadline: a disk that does not answer becomes an error, not a run that
hangs.

For a GPU let `produce` end with `Batch.pinned()`: the thread then pays for page-locked memory, and the copy to the device
overlaps with the computation.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from queue import SimpleQueue
from types import TracebackType
from typing import Generic, TypeVar

from ingot.workspace.errors import DataError

T = TypeVar("T")
DEADLINE_SECONDS = 600.0  # a cold network disk may take minutes for its first page


class Prefetcher(Generic[T]):
    """Results of `produce(step)` made ahead, in order from `first_step`, for steps below `last_step`."""

    def __init__(
        self,
        produce: Callable[[int], T],
        first_step: int,
        last_step: int,
        depth: int = 2,
        *,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        if depth < 1:
            raise ValueError(f"a prefetch depth of {depth}")
        self._produce, self._last_step, self._depth = produce, last_step, depth
        self._deadline_seconds = deadline_seconds
        self._ordered: deque[tuple[int, Future[T]]] = deque()  # in order of steps, ready or not
        self._orders: SimpleQueue[tuple[int, Future[T]] | None] = (
            SimpleQueue()
        )  # the same, for the thread; None: the end
        self._closed = False
        # Not an executor: the interpreter waits for its threads at the end, and one may be stuck in a read.
        self._thread = threading.Thread(target=self._work, name="prefetch", daemon=True)
        self._thread.start()
        self.restart(first_step)

    def get(self, step: int) -> tuple[T, float]:
        """The result of `step`, and how many seconds it was waited for."""
        began = time.monotonic()
        if self._closed:
            raise ValueError("the prefetcher is closed")
        if not self._ordered or self._ordered[0][0] != step:
            self.restart(step)
        if not self._ordered:  # a step from `last_step` on: not made ahead, but made
            self._order(step)
        _, future = self._ordered.popleft()
        self._order_ahead(step + 1)
        wait([future], self._deadline_seconds)
        if not future.done():
            raise self._stuck(f"step {step} was not there")
        return future.result(), time.monotonic() - began

    def restart(self, step: int) -> None:
        """Throw away what was made ahead and go on from `step`."""
        for _, future in self._ordered:
            future.cancel()
        self._ordered.clear()
        self._order_ahead(step)

    def close(self) -> None:
        """End the thread; safe to call twice."""
        self._closed = True
        self.restart(self._last_step)
        self._orders.put(None)
        self._thread.join(self._deadline_seconds)
        if self._thread.is_alive():
            raise self._stuck("the thread did not end")

    def __enter__(self) -> Prefetcher[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _order_ahead(self, first: int) -> None:
        """Order the steps `first` .. `first + depth − 1` that are not ordered yet."""
        begin = self._ordered[-1][0] + 1 if self._ordered else first
        for step in range(begin, min(first + self._depth, self._last_step)):
            self._order(step)

    def _order(self, step: int) -> None:
        future: Future[T] = Future()
        self._ordered.append((step, future))
        self._orders.put((step, future))

    def _work(self) -> None:
        while (order := self._orders.get()) is not None:  # no deadline: an idle thread waits as long as a step takes
            step, future = order
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(self._produce(step))
                except BaseException as error:  # noqa: BLE001 - raised by the `get` of this step
                    future.set_exception(error)

    def _stuck(self, problem: str) -> DataError:
        return DataError(
            f"{problem} after {self._deadline_seconds:g} s: the disk may be stuck, or making a batch is far too slow",
            place="prefetch thread",
            fix="check the disk that holds the shards; the run goes on from its last checkpoint",
        )
