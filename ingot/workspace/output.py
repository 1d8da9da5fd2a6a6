"""Standard output that cannot be written: its reader has gone (`| head -1`), its disk is full, or it was closed from the start.

A run that lasts for days goes on without its lines; what it made is in its folder.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TextIO


def open_closed_streams() -> None:
    """Python has None for a stream that was closed when it began, and a file opened next would get its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 - open until the end


def go_on_without_output(error: OSError) -> None:
    """Send what is still printed nowhere, and say so once on standard error."""
    _send_nowhere(sys.stdout)
    try:
        sys.stderr.write(f"standard output cannot be written ({error.strerror}); the run goes on without it\n")
        sys.stderr.flush()
    except OSError:
        _send_nowhere(sys.stderr)


def output_failure() -> OSError | None:
    """What is wrong with standard output, if it holds text that it cannot write; that text is given up."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _send_nowhere(sys.stdout)
        return error
    return None


def _send_nowhere(stream: TextIO) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
    with suppress(OSError):
        stream.flush()
