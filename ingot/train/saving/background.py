"""Runs one piece of work at a time in a thread; its exception is raised again at the next wait."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ingot.workspace.errors import CheckFailed


class Background:
    """A thread for one piece of work. It ends with the process, whatever it is doing: files are renamed only when complete."""

    def __init__(self, deadline_seconds: float) -> None:
        self.deadline_seconds = deadline_seconds
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    @property
    def busy(self) -> bool:
        """Whether there is work going on."""
        return self._thread is not None and self._thread.is_alive()

    def idle_within(self, seconds: float) -> bool:
        """Wait a moment; whether the work is done then."""
        if self._thread is not None:
            self._thread.join(seconds)
        return not self.busy

    def start(self, work: Callable[[], None]) -> None:
        """Begin `work`; the one before must have been waited for."""
        assert self._thread is None, "one piece of work at a time"

        def run() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - raised again by `wait`
                self._failure = error

        self._thread = threading.Thread(target=run, name="checkpoint", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until the work is done; raises what it raised, or an error when the deadline passes."""
        if self._thread is not None:
            self._thread.join(self.deadline_seconds)
            if self._thread.is_alive():
                raise CheckFailed(
                    f"a checkpoint is not written after {self.deadline_seconds:.0f} s",
                    fix="look at the disk (or at the other ranks); the checkpoint before it is intact",
                )
            self._thread = None
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
