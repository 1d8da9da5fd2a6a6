"""A child process that answers JSON, a line for a line, and can be killed at any time.

For code that we or the user wrote, but that may not end: a library on hostile input, a tool. It runs with the user's rights; what
a model wrote runs in a sandbox. One request at a time: a caller that gets no answer in time must close the process, because an
answer that comes late would be taken for the next one's.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from ingot.sandbox.processes import end, has_ended

LONGEST = 2**26  # bytes of an answer
CLOSE_SECONDS = 10.0  # for a process that has closed its pipe to end


class JsonProcess:
    """The process of a command."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=None if environment is None else {**os.environ, **environment},
            start_new_session=True,  # Ctrl-C stops the process that waits for it, and killing the group ends all that it started
        )

    @property
    def ended(self) -> bool:
        """Whether it has died."""
        return has_ended(self._process)

    @property
    def killed_by(self) -> int | None:
        """The signal that ended it, 0 if it ended by itself, None if it goes on."""
        return max(0, -self._process.wait(timeout=CLOSE_SECONDS)) if self.ended else None

    def ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any] | None:
        """The answer; None if the time is over or the process has ended."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            return self.read(seconds)
        except (OSError, ValueError):  # it has ended, or another thread has closed it
            return None

    def read(self, seconds: float) -> dict[str, Any] | None:
        """The next line that it says by itself; None as above."""
        assert self._process.stdout is not None
        pipe, data, stop = self._process.stdout.fileno(), b"", time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while not data.endswith(b"\n"):
                if not selector.select(max(0.0, stop - time.monotonic())) or len(data) > LONGEST:
                    return None
                part = os.read(pipe, 65_536)
                if not part:
                    self._process.wait(timeout=CLOSE_SECONDS)
                    return None
                data += part
        return dict(json.loads(data))

    def close(self) -> None:
        """Kill it with all that it started, and wait for it."""
        assert self._process.stdin is not None
        with self._process:  # closes its pipes
            end(self._process)
            with suppress(BrokenPipeError):  # of a request that it has not read
                self._process.stdin.close()
