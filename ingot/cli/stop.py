"""Which signal stopped a command, and the command that resumes it."""

from __future__ import annotations

import atexit
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from ingot.workspace.interrupt import StopSignal, stop_on_signals

STANDARD_ERROR = 2


@contextmanager
def note_signals(stop: StopSignal, received: list[int]) -> Iterator[None]:
    """`stop_on_signals` that answers the first signal at once; `received` says which came: the exit code depends on it."""

    def noting(polite: Callable[[int, FrameType | None], Any]) -> Callable[[int, FrameType | None], None]:
        def handle(number: int, frame: FrameType | None) -> None:
            received.append(number)
            if not stop.requested:
                _answer(number)
            polite(number, frame)

        return handle

    with stop_on_signals(stop):
        for number in (signal.SIGINT, signal.SIGTERM):
            polite = signal.getsignal(number)
            if callable(polite):
                signal.signal(number, noting(polite))
        try:
            yield
        finally:
            if received:
                # a further Ctrl-C could only interrupt the end of the interpreter, with a traceback
                atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


def _answer(number: int) -> None:
    """Print that the signal arrived, since the step may take a while; of several processes only the main rank prints.

    Written past the streams' buffers, which this signal may have interrupted, and on a line below a progress bar.
    """
    if os.environ.get("RANK", "0") != "0":
        return
    again = "; Ctrl-C again stops at once" if number == signal.SIGINT else ""
    below = "\n" if sys.stderr.isatty() else ""
    os.write(STANDARD_ERROR, f"{below}stopping at the next step{again}\n".encode())


def resume_command() -> str:
    """This command again, without `--from`, which would delete the work."""
    return shlex.join(["ingot", *without("--from", sys.argv[1:])])


def without(option: str, given: Sequence[str]) -> list[str]:
    """The arguments of a command without an option and its value."""
    arguments, kept = iter(given), []
    for argument in arguments:
        if argument == option:
            next(arguments, None)
        elif not argument.startswith(f"{option}="):
            kept.append(argument)
    return kept
