"""One sandbox with its zygote, seen from outside: programs run in it one after another, each in a cell of its own.

`running.py` runs programs on it. A worker that does not answer in time is ended with all that is in it, and `SandboxError` is
raised.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from ingot.sandbox import memory
from ingot.sandbox.levels import FOLDER, Level
from ingot.sandbox.processes import end
from ingot.workspace.errors import IngotError

START_SECONDS = 30.0
END_SECONDS = 10.0
CHUNK = 65_536
BOOT = "import sys; sys.path.insert(0, sys.argv[1]); from ingot.sandbox.inside.zygote import main; main()"


class SandboxError(IngotError):
    """The sandbox itself failed: nothing is known about the program."""


class SandboxWorker:
    """A zygote and its sandbox. Not for several threads at once."""

    def __init__(self, level: Level) -> None:
        self.level, self.programs = level, 0
        self._folder = tempfile.TemporaryDirectory(prefix="ingot-sandbox-", ignore_cleanup_errors=True)
        self.socket, theirs = socket.socketpair()
        packages = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
        with theirs:
            try:
                self.process = subprocess.Popen(
                    [*level.command, sys.executable, "-I", "-S", "-X", "utf8", "-c", BOOT, level.package, *packages],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    env={"LD_BIND_NOW": "1"},  # the zygote binds its libraries, so that no cell has to
                    start_new_session=True,
                )
            except OSError as error:  # the machine has no process, memory or descriptor left
                self.socket.close()
                self._folder.cleanup()
                problem, fix = (
                    f"the sandbox does not start: {error}",
                    "run fewer programs at once, or raise `ulimit -u -n`",
                )
                raise SandboxError(problem, place="sandbox", fix=fix) from error
        self.answers = b""
        try:
            self._take_answer(START_SECONDS)
        except SandboxError:
            self.close()
            raise

    def __enter__(self) -> SandboxWorker:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        """Whether its zygote can still be asked."""
        return self.process.poll() is None and self.socket.fileno() >= 0

    def send(self, order: dict[str, Any], files: Sequence[bytes], descriptors: Sequence[int]) -> None:
        """Ask the zygote for a cell; it has the descriptors when this returns."""
        data = json.dumps(order).encode()
        self.socket.settimeout(START_SECONDS)
        try:
            socket.send_fds(self.socket, [len(data).to_bytes(4, "big")], list(descriptors))
            self.socket.sendall(data + b"".join(files))
        except OSError as error:
            self.close()
            raise SandboxError(f"the sandbox takes no program: {error}", place="sandbox", fix="run it again") from error
        self.programs += 1

    def send_command(self, command: bytes) -> None:
        """Kill ("k") or interrupt ("i") the program that runs."""
        try:
            self.socket.sendall(command)
        except OSError:  # it is dead: so is the program
            self.close()

    def answer(self, seconds: float) -> dict[str, Any]:
        """What the zygote says of the program, within `seconds`."""
        answer = self._take_answer(seconds)
        if "error" in answer:
            self.close()
            raise SandboxError(
                f"no cell could be made: {answer['error']}", place="sandbox", fix="see docs/methods/sandbox.md"
            )
        return answer

    def _take_answer(self, seconds: float) -> dict[str, Any]:
        try:
            self.socket.settimeout(seconds)
            while b"\n" not in self.answers:
                part = self.socket.recv(CHUNK)
                if not part:
                    raise OSError("it has ended")
                self.answers += part
        except OSError as error:
            self.close()
            assert self.process.stderr is not None
            os.set_blocking(self.process.stderr.fileno(), False)
            said = (self.process.stderr.read(CHUNK) or b"").decode("utf-8", "replace").strip()[-500:]
            raise SandboxError(
                f"the sandbox does not answer ({error}) {said}", place="sandbox", fix="run it again"
            ) from error
        line, _, self.answers = self.answers.partition(b"\n")
        return {} if line == b"ready" else dict(json.loads(line))

    def home(self) -> str:
        """The folder of the next program: in memory, or a new one on disk where there is no isolation."""
        isolated = self.level.isolation == "bubblewrap"
        return FOLDER if isolated else tempfile.mkdtemp(dir=self._folder.name)

    def close(self) -> None:
        """End everything in the sandbox, and wait until it has ended.

        The zygote is killed first: bubblewrap ends when it and so all others of its process space are dead.
        """
        if self.level.isolation == "bubblewrap" and self.process.poll() is None:
            for number in memory.descendants(self.process.pid)[1:2]:
                with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                    os.kill(number, signal.SIGKILL)
                    self.process.wait(END_SECONDS)
        self.socket.close()
        end(self.process)
        self._folder.cleanup()
