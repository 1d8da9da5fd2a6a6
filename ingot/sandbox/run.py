"""Runs one program within limits and reports how it ended.

    outcome = run(Program((sys.executable, "-I", "-c", "print(6 * 7)")), Limits(seconds=5))
    outcome.stdout, outcome.exit, outcome.ended_by, outcome.isolation

What holds at every level (levels.py has the levels and what each adds):
- The program starts in an empty folder of its own, its HOME, and sees the environment it is given and no other.
- Processor time, memory (of each process), size of a file and open files are limited; more output than `limits.output`, or
  more wall-clock time than `limits.seconds`, ends it. Reading its output never blocks and never holds more than that.
- When `run` returns, the program and its process group are dead. At the levels bubblewrap and namespaces everything it
  ever started is dead; at the level process a child that left the group (setsid) lives on.
The number of processes is limited where Linux counts those of the program alone (bubblewrap, and namespaces unless root).
There is no limit on the memory of all processes together: that takes a cgroup.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Any, Literal

from ingot.sandbox.levels import FOLDER, Isolation, Level, levels
from ingot.sandbox.processes import end, has_ended
from ingot.workspace.errors import IngotError

EndedBy = Literal["exit", "signal", "time", "cpu", "output"]
LAUNCHER = Path(__file__).with_name("launcher.py")
POLL_SECONDS = 0.05  # how late the end of a program is seen if a child of it keeps its output open
PROBE_SECONDS = 20.0
CHUNK = 65_536
SIGNALS = 128  # a status above it stands for a signal, as a shell writes it and bwrap too


@dataclass(frozen=True)
class Program:
    """A command with absolute path, its input, and text files to write into its folder; names are relative paths."""

    command: tuple[str, ...]
    stdin: bytes = b""
    files: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Limits:
    """The limits of a program. `seconds` are of the wall clock, `cpu` of the processor (None: as many); sizes are bytes."""

    seconds: float
    cpu: int | None = None
    memory: int = 2**30
    file: int = 2**24
    output: int = 2**24
    processes: int = 128
    open_files: int = 256


@dataclass(frozen=True)
class Outcome:
    """How a program ended. `exit` is its status, or minus the number of the signal that ended it."""

    exit: int
    stdout: bytes
    stderr: bytes
    seconds: float
    ended_by: EndedBy
    isolation: Isolation


def run(program: Program, limits: Limits, isolation: Isolation | None = None) -> Outcome:
    """Run a program as isolated as this machine allows, or at the level that is asked for."""
    return _run(program, limits, _level(isolation))


def isolation() -> Isolation:
    """The strongest level that works on this machine."""
    return _level(None).isolation


@cache
def _level(wanted: Isolation | None) -> Level:
    """The strongest level that works, or the one that is wanted."""
    probe = Program((sys.executable, "-I", "-S", "-c", "print(6 * 7)"))
    for level in levels():
        if wanted not in (None, level.isolation):
            continue
        if level.isolation == "process" or _run(probe, Limits(PROBE_SECONDS), level).stdout == b"42\n":
            return level
    raise IngotError(
        f"programs cannot be isolated by {wanted} here",
        place="sandbox",
        fix="install bubblewrap, and allow user namespaces",
    )


def _run(program: Program, limits: Limits, level: Level) -> Outcome:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ingot-sandbox-", ignore_cleanup_errors=True) as folder:
        order = _order(program, limits, level, FOLDER if level.isolation == "bubblewrap" else folder)
        launcher = (sys.executable, "-I", "-S", "-c", LAUNCHER.read_text(encoding="utf-8"), str(len(order)))
        process = subprocess.Popen(
            [*level.command, *launcher],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder,
            env={},
            start_new_session=True,
        )
        with process, _Pipes(process, order + program.stdin, limits.output) as pipes:
            try:
                stopped = pipes.follow(began + limits.seconds)
            finally:
                end(process)
            stopped = stopped or pipes.drain()
    status = process.returncode
    if level.isolation != "process" and status > SIGNALS:
        status = SIGNALS - status
    ended_by: EndedBy = stopped or ("exit" if status >= 0 else "cpu" if status == -signal.SIGXCPU else "signal")
    out, errors = (bytes(taken[: limits.output]) for taken in pipes.taken)
    return Outcome(status, out, errors, time.monotonic() - began, ended_by, level.isolation)


def _order(program: Program, limits: Limits, level: Level, home: str) -> bytes:
    """The instructions for the launcher."""
    most = {
        "RLIMIT_CPU": int(limits.seconds if limits.cpu is None else limits.cpu) + 1,
        "RLIMIT_AS": limits.memory,
        "RLIMIT_FSIZE": limits.file,
        "RLIMIT_NOFILE": limits.open_files,
        "RLIMIT_CORE": 0,
    }
    if level.counts_processes:
        most["RLIMIT_NPROC"] = limits.processes
    order = {
        "namespaces": level.isolation == "namespaces",
        "user": level.user(),
        "limits": most,
        "files": dict(program.files),
        "command": program.command,
        "environment": {"PATH": os.defpath, "HOME": home, "LC_ALL": "C.UTF-8", **program.environment},
    }
    return json.dumps(order).encode()


class _Pipes:
    """Feeds a process and takes what it writes, without ever waiting for it."""

    def __init__(self, process: subprocess.Popen[bytes], data: bytes, most: int) -> None:
        self.process, self.data, self.most = process, memoryview(data), most
        self.taken = (bytearray(), bytearray())
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> _Pipes:
        for stream, taken in zip((self.process.stdout, self.process.stderr), self.taken, strict=True):
            self._register(stream, selectors.EVENT_READ, taken)
        self._register(self.process.stdin, selectors.EVENT_WRITE, None)
        return self

    def __exit__(self, *exception: object) -> None:
        self._selector.close()

    def follow(self, deadline: float) -> EndedBy | None:
        """Wait until the process ends (None), or must be stopped for the reason that is returned."""
        while not has_ended(self.process):
            left = deadline - time.monotonic()
            if left <= 0:
                return "time"
            if not self._selector.get_map():  # it has closed its output and goes on
                time.sleep(min(left, POLL_SECONDS))
            self._move(min(left, POLL_SECONDS))
            if self._full():
                return "output"
        return None

    def drain(self) -> EndedBy | None:
        """Take what a dead process left in its pipes. A child of it that lives on may hold them open: do not wait for more."""
        while not self._full() and self._move(0.0):
            pass
        return "output" if self._full() else None

    def _full(self) -> bool:
        return sum(map(len, self.taken)) > self.most

    def _register(self, stream: IO[bytes] | None, event: int, taken: bytearray | None) -> None:
        assert stream is not None
        os.set_blocking(stream.fileno(), False)
        self._selector.register(stream, event, taken)

    def _move(self, seconds: float) -> bool:
        """Read and write what is ready within `seconds`; whether anything was."""
        ready = self._selector.select(seconds) if self._selector.get_map() else []
        for key, _ in ready:
            stream: Any = key.fileobj
            if key.data is None:
                try:
                    self.data = self.data[os.write(stream.fileno(), self.data[:CHUNK]) :]
                except BrokenPipeError:
                    self.data = self.data[:0]
                done = not self.data
            else:
                part = os.read(stream.fileno(), CHUNK)
                key.data.extend(part)
                done = not part
            if done:
                self._selector.unregister(stream)
                stream.close()
        return bool(ready)
