"""Sessions: a process that keeps its state between calls, in a sandbox of its own (`shell.py`, `notebook.py`).

`Limits.seconds` and `Limits.output` hold for each call, the others for the session. A call over its limit is interrupted as by
Ctrl-C; if it does not end in `GRACE_SECONDS`, the session is killed and every later call raises `SessionEnded`. Files are read
and written by a process inside, which sees no file of the machine: a symbolic link leads nowhere else. Processes in the
background go on between calls, and end with the session.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from ingot.sandbox.program import EndedBy, Limits, Program
from ingot.sandbox.run import permitted
from ingot.sandbox.running import POLL_SECONDS, growth, order
from ingot.sandbox.worker import CHUNK, SandboxError, SandboxWorker
from ingot.workspace.errors import IngotError

GRACE_SECONDS = 2.0  # for an interrupted call to end
MOST_CONTROL = 2**20  # bytes of an answer besides a file's
FOREVER = 10**7  # processor seconds: a session lives until it is closed


class SessionEnded(IngotError):
    """The session is over: its process ended, or was killed."""


@dataclass(frozen=True)
class SessionOutput:
    """What a call printed (stdout and stderr in order), its status, and which limit stopped it, if one did."""

    output: str
    status: int
    stopped: EndedBy | None = None


class Session:
    """A process in a sandbox that answers calls. Subclasses say how a call is written and its answer read."""

    def __init__(self, program: Program, limits: Limits) -> None:
        self.limits = limits
        self.ended = ""  # why, once it has
        self._worker = SandboxWorker(permitted(limits))
        stdin, self._stdin = os.pipe()
        self._output, output = os.pipe()
        self._control, control = os.pipe()
        try:
            request = order(program, replace(limits, cpu=limits.cpu or FOREVER), self._worker, [])
            self._worker.send(request, [], [stdin, output, output, control])
        except SandboxError:
            self.close()
            raise
        finally:
            for descriptor in (stdin, output, control):
                os.close(descriptor)
        for descriptor in (self._stdin, self._output, self._control):
            os.set_blocking(descriptor, False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End the session and everything in it."""
        self._end("it was closed")

    def _is_over(self) -> bool:
        return bool(self.ended)

    def _end(self, reason: str) -> None:
        if not self.ended:
            self.ended = reason
            self._worker.close()
            for descriptor in (self._stdin, self._output, self._control):
                os.close(descriptor)

    def _exchange(
        self, data: bytes, answer: Callable[[bytes], bytes | None], limits: Limits
    ) -> tuple[bytes, bytes, EndedBy | None]:
        """Send a request. Returns the output, what `answer` finds in the control stream, and the limit that stopped it."""
        if self._is_over():
            raise SessionEnded(f"the session is over: {self.ended}", place="sandbox", fix="open another")
        left, output, control = memoryview(data), bytearray(), b""
        stopped: EndedBy | None = None
        looked = time.monotonic()
        end = looked + limits.seconds
        while (found := answer(control)) is None:
            now = time.monotonic()
            over: EndedBy | None = "time" if now >= end else "output" if len(output) > limits.output else None
            del output[limits.output :]
            if stopped is not None and now >= end:
                self._end(f"a call was over its limit ({stopped}) and did not end when it was interrupted")
            elif stopped is None and over is not None:
                stopped, end = over, now + GRACE_SECONDS
                self._worker.send_command(b"i")
            elif len(control) > MOST_CONTROL + limits.file * 2:
                self._end("its process answers with nonsense")
            if self._is_over():
                return bytes(output), b"", stopped
            ready = self._ready(min(end - now, POLL_SECONDS), writing=bool(left))
            if self._worker.socket.fileno() in ready:
                output += self._rest()
                self._end("its process ended")
            elif self._stdin in ready:
                left = left[self._write(left[:CHUNK]) :]
            output += self._take(self._output) if self._output in ready else b""
            control += self._take(self._control) if self._control in ready else b""
            if now - looked > POLL_SECONDS and not self._is_over():
                looked = now
                if grown := growth(self._worker, self.limits):
                    stopped = grown
                    self._end(f"it was over its limit ({grown})")
        return bytes(output + self._rest())[: limits.output], found, stopped

    def _ready(self, seconds: float, *, writing: bool) -> list[int]:
        """The descriptors that can be read, or written, within `seconds`."""
        waiting = select.poll()
        for descriptor in (self._output, self._control, self._worker.socket.fileno()):
            waiting.register(descriptor, select.POLLIN)
        if writing:
            waiting.register(self._stdin, select.POLLOUT)
        return [descriptor for descriptor, _ in waiting.poll(max(0.0, seconds) * 1000)]

    def _write(self, data: memoryview) -> int:
        try:
            return os.write(self._stdin, data)
        except BrokenPipeError:  # it has ended, which the worker says next
            return len(data)

    def _take(self, descriptor: int) -> bytes:
        """What is in a pipe now; nothing once the session has ended."""
        try:
            return b"" if self.ended else os.read(descriptor, CHUNK)
        except BlockingIOError:
            return b""

    def _rest(self) -> bytes:
        """What is left in the pipe: it was written before the answer, so it belongs to the call."""
        taken = bytearray()
        while len(taken) <= self.limits.output and (part := self._take(self._output)):
            taken += part
        return bytes(taken)

    def _limits(self, seconds: float | None) -> Limits:
        return self.limits if seconds is None else replace(self.limits, seconds=seconds)

    def _check_size(self, size: int) -> None:
        if size > self.limits.file:
            raise IngotError(
                f"the file is larger than {self.limits.file:,} bytes", place="sandbox", fix="raise Limits.file"
            )
