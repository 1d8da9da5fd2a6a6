"""Work on many documents at once, in processes of this machine.

The results are those of a plain loop, in the same order, whatever the number of processes. Small work stays in this
process, where it is done before a helper would have started.

Three things that a bare process pool would get wrong here:
- a helper is started by `spawn` and would run the caller's main script again, so that `ingot.run(…)` in a script
  without an `if __name__ == "__main__"` would start itself for ever: the main module is hidden while helpers start;
- Ctrl-C reaches the whole process group: helpers ignore it and leave stopping to the main process;
- a helper would outlive a main process that was killed: each one watches its parent and ends with it.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

from ingot.workspace.errors import DataError
from ingot.workspace.interrupt import StopSignal

Item = TypeVar("Item")
Result = TypeVar("Result")

CHUNK_WEIGHT = 500_000  # characters or bytes in a piece of work: a fraction of a second
SMALL_WEIGHT = 2_000_000  # less than this in all is done here
DEADLINE_SECONDS = 600.0


class Workers:
    """A pool that starts its processes when the first large piece of work comes. Use as a context manager."""

    def __init__(self, stop: StopSignal, processes: int | None = None, small: int = SMALL_WEIGHT) -> None:
        self.stop = stop
        self.processes = available_processors() if processes is None else processes
        self.small = small
        self.pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        if self.pool is not None:
            self.pool.shutdown(wait=False, cancel_futures=True)

    def map(
        self,
        function: Callable[..., list[Result]],
        items: Sequence[Item],
        weigh: Callable[[Item], int],
        *arguments: Any,
    ) -> list[Result]:
        """`function(some items, *arguments)` over all items, in pieces of similar weight, results concatenated.

        `function` must be importable by name and return a list; the order of the results is the order of the items.
        """
        pieces = list(chunks(items, weigh))
        results: list[Result] = []
        if self.processes < 2 or sum(map(weigh, items)) < self.small:
            for piece in pieces:
                self.stop.check()
                results += function(piece, *arguments)
            return results
        for future in self._submit_all(function, pieces, arguments):
            self.stop.check()
            try:
                results += future.result(timeout=DEADLINE_SECONDS)
            except FutureTimeoutError:
                raise DataError(
                    f"a helper process did not answer in {DEADLINE_SECONDS:.0f} s ({function.__name__})",
                    fix="look at the machine's load, or lower max_bytes",
                ) from None
            except BrokenProcessPool:
                raise DataError(
                    f"a helper process died ({function.__name__}); the usual cause is too little memory",
                    fix="lower max_bytes, or free memory",
                ) from None
        return results

    def _submit_all(
        self, function: Callable[..., list[Result]], pieces: list[list[Item]], arguments: tuple[Any, ...]
    ) -> list[Future[list[Result]]]:
        if self.pool is None:
            self.pool = ProcessPoolExecutor(
                self.processes, multiprocessing.get_context("spawn"), initializer=prepare_helper
            )
        with hidden_main_module():  # the pool starts processes inside submit
            return [self.pool.submit(function, piece, *arguments) for piece in pieces]


def chunks(items: Sequence[Item], weigh: Callable[[Item], int]) -> Iterator[list[Item]]:
    """Consecutive items in pieces of at least `CHUNK_WEIGHT`, the last one smaller."""
    piece: list[Item] = []
    weight = 0
    for item in items:
        piece.append(item)
        weight += weigh(item) + 1
        if weight >= CHUNK_WEIGHT:
            yield piece
            piece, weight = [], 0
    if piece:
        yield piece


def available_processors() -> int:
    """Processors that this process may use; containers often allow fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def hidden_main_module() -> Iterator[None]:
    """While inside, a process started by `spawn` does not run the caller's main script."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def prepare_helper() -> None:
    """Runs once in each helper process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()  # syntax trees and lists of words hold no cycles; the collector would only walk them again and again
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    """Leave as soon as the main process is gone, however it went."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
