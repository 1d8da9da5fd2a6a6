"""Stops long loops gracefully: on Ctrl-C or SIGTERM they save and end between two steps.

The first signal asks politely (the loop saves and raises `Interrupted`); a second Ctrl-C stops at once, which is safe
because nothing on disk is ever half written.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

from ingot.workspace.errors import Interrupted


class StopSignal:
    """A flag that says whether the user asked to stop."""

    def __init__(self) -> None:
        self._event = threading.Event()

    @property
    def requested(self) -> bool:
        """True once a stop was asked for."""
        return self._event.is_set()

    def request(self) -> None:
        """Ask for a stop at the next step."""
        self._event.set()

    def check(self) -> None:
        """Raise `Interrupted` if a stop was asked for: for work that is cheap to redo or already saved."""
        if self.requested:
            raise Interrupted


def stop_on_signals(stop: StopSignal) -> AbstractContextManager[None]:
    """While inside, SIGINT and SIGTERM request a stop instead of raising. Only the main thread can install this."""

    def handle(number: int) -> None:
        if stop.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.request()

    return on_signals(handle)


@contextmanager
def on_signals(act: Callable[[int], None]) -> Iterator[None]:
    """While inside, SIGINT and SIGTERM call `act` with their number and do nothing else. Without effect outside of the main
    thread, which alone can install this."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        act(number)

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
