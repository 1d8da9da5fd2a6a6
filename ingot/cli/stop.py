"""Which signal stopped a command, and the command that goes on from there."""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from ingot.workspace.interrupt import StopSignal, stop_on_signals


@contextmanager
def note_signals(stop: StopSignal, received: list[int]) -> Iterator[None]:
    """`stop_on_signals`, and `received` says which ones came: the exit code depends on it."""

    def noting(polite: Callable[[int, FrameType | None], Any]) -> Callable[[int, FrameType | None], None]:
        def handle(number: int, frame: FrameType | None) -> None:
            received.append(number)
            polite(number, frame)

        return handle

    with stop_on_signals(stop):
        for number in (signal.SIGINT, signal.SIGTERM):
            polite = signal.getsignal(number)
            if callable(polite):
                signal.signal(number, noting(polite))
        yield


def resume_command() -> str:
    """This command again, without `--from`: that would throw away what was just done."""
    return shlex.join(["ingot", *without_from(sys.argv[1:])])


def without_from(given: Sequence[str]) -> list[str]:
    """The arguments of a command that goes on with the work of the given ones."""
    arguments, kept = iter(given), []
    for argument in arguments:
        if argument == "--from":
            next(arguments, None)
        elif not argument.startswith("--from="):
            kept.append(argument)
    return kept
