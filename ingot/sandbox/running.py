"""Programs that run on workers: feeds them, takes what they write without ever waiting for it, and stops what is over a limit.

with Worker(level) as worker:
    outcome = run_on(worker, program, limits)
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Sequence
from typing import Any

from ingot.sandbox import memory
from ingot.sandbox.levels import python_folders
from ingot.sandbox.program import EndedBy, Limits, Outcome, Program
from ingot.sandbox.worker import CHUNK, SandboxError, SandboxWorker

KILL_SECONDS = 10.0  # for the kernel to end what was killed
POLL_SECONDS = 0.05  # how often the memory of a program is looked at
OWN_PROCESSES = 3  # bubblewrap, the zygote, the first process of a cell


def run_on(worker: SandboxWorker, program: Program, limits: Limits) -> Outcome:
    """Run one program to its end."""
    with Running(worker, program, limits) as running:
        follow([running], until=running)
        return running.outcome()


class Running:
    """A program that runs on a worker, and the pipes to it."""

    def __init__(self, worker: SandboxWorker, program: Program, limits: Limits) -> None:
        self.worker, self.limits = worker, limits
        self.began = time.monotonic()
        self.status: int | None = None
        self.stopped: EndedBy | None = None
        self.taken = [bytearray(), bytearray(), bytearray()]  # stdout, stderr, result
        self.stdin = memoryview(program.stdin)
        stdin, self._stdin = os.pipe()
        pipes = [os.pipe() for _ in self.taken]
        self._reading = [reading for reading, _ in pipes]
        theirs = [stdin, *(writing for _, writing in pipes)]
        try:
            files = [
                data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
                for data in program.files.values()
            ]
            worker.send(order(program, limits, worker, files), files, [*theirs, *program.links])
        except SandboxError:
            self.close()
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        for descriptor in (self._stdin, *self._reading):
            os.set_blocking(descriptor, False)

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.status is None and self.worker.alive:
            self.kill()
        self.close()

    def close(self) -> None:
        """Close the pipes."""
        for descriptor in (self._stdin, *self._reading):
            if descriptor >= 0:
                os.close(descriptor)
        self._stdin, self._reading = -1, []

    def kill(self) -> None:
        """End the program and all that it started.

        One that is over a limit may have made its own end slow. It is dead all the same when its worker is, so that is no error.
        """
        self.worker.send_command(b"k")
        try:
            self.status = self.worker.answer(KILL_SECONDS)["status"]
        except SandboxError:
            if not self.stopped:
                raise
            self.status = signal.SIGKILL

    def register(self, selector: selectors.BaseSelector) -> None:
        """Name the descriptors to wait for."""
        selector.register(self.worker.socket, selectors.EVENT_READ, (self, None))
        for descriptor, taken in zip(self._reading, self.taken, strict=True):
            selector.register(descriptor, selectors.EVENT_READ, (self, taken))
        if self._feed():
            selector.register(self._stdin, selectors.EVENT_WRITE, (self, None))

    def move(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        """Do what a ready descriptor asks for."""
        if key.fileobj is self.worker.socket:
            self.status = self.worker.answer(KILL_SECONDS)["status"]
            selector.unregister(key.fileobj)
        elif key.fd == self._stdin:
            if not self._feed():
                selector.unregister(key.fd)
        else:
            try:
                part = os.read(key.fd, CHUNK)
            except BlockingIOError:  # the program has read it itself, by /proc/self/fd
                return
            key.data[1].extend(part)
            if not part:
                selector.unregister(key.fd)

    def _feed(self) -> bool:
        """Write what stdin takes; whether more is left. Closes it after the last byte."""
        try:
            while self.stdin:
                self.stdin = self.stdin[os.write(self._stdin, self.stdin[:CHUNK]) :]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            self.stdin = self.stdin[:0]
        os.close(self._stdin)
        self._stdin = -1
        return False

    def drain(self) -> None:
        """Take what a dead program left in its pipes."""
        for descriptor, taken in zip(self._reading, self.taken, strict=True):
            while len(taken) <= self.limits.output:
                try:
                    part = os.read(descriptor, CHUNK)
                except BlockingIOError:  # a process outside of the cell, without isolation, may hold it open
                    break
                taken += part
                if not part:
                    break

    def excess(self, now: float) -> EndedBy | None:
        """Which limit the program is over, if it is."""
        if sum(map(len, self.taken)) > self.limits.output:
            return "output"
        return "time" if now - self.began > self.limits.seconds else None

    def growth(self) -> EndedBy | None:
        """Whether its processes together are too large or too many."""
        return growth(self.worker, self.limits)

    def outcome(self) -> Outcome:
        """How it ended."""
        assert self.status is not None
        code = os.waitstatus_to_exitcode(self.status)
        ended_by: EndedBy = "exit" if code >= 0 else "cpu" if code == -signal.SIGXCPU else "signal"
        self.stopped = self.stopped or self.excess(self.began)
        if ended_by == "cpu" and self.stopped == "time":  # both limits passed at once, and the kernel was first
            self.stopped = None
        out, errors, result = (bytes(taken[: self.limits.output]) for taken in self.taken)
        seconds, isolation = time.monotonic() - self.began, self.worker.level.isolation
        return Outcome(code, out, errors, result, seconds, self.stopped or ended_by, isolation)


def growth(worker: SandboxWorker, limits: Limits) -> EndedBy | None:
    """Whether the processes on a worker are too many or too large together: the kernel limits each one alone."""
    found = memory.descendants(worker.process.pid)
    if len(found) > limits.processes + OWN_PROCESSES:
        return "processes"
    network = (
        next(iter(found[1:]), None) if worker.level.isolation == "bubblewrap" else None
    )  # the zygote is in the cells'
    return "memory" if memory.are_above(limits.memory, found, network) else None


def follow(programs: Sequence[Running], until: Running) -> None:
    """Attend to programs until one of them ends or is over a limit; then every one of them is dead."""
    with selectors.DefaultSelector() as selector:
        for running in programs:
            running.register(selector)
        looked = time.monotonic()
        while until.status is None and not any(running.stopped for running in programs):
            now = time.monotonic()
            left = min(running.began + running.limits.seconds for running in programs) - now
            for key, _ in selector.select(min(max(0.0, left), POLL_SECONDS)):
                key.data[0].move(selector, key)
            now = time.monotonic()
            look, looked = (True, now) if now - looked > POLL_SECONDS else (False, looked)
            for running in programs:
                running.stopped = running.excess(now) or (running.growth() if look else None)
    for running in programs:
        if running.status is None:
            running.kill()
        running.drain()


def order(program: Program, limits: Limits, worker: SandboxWorker, files: Sequence[bytes]) -> dict[str, Any]:
    """The instructions for a zygote."""
    most = {
        "RLIMIT_CPU": int(limits.seconds if limits.cpu is None else limits.cpu) + 1,
        "RLIMIT_AS": limits.address_space or limits.memory,
        "RLIMIT_FSIZE": limits.file,
        "RLIMIT_NOFILE": limits.open_files,
        "RLIMIT_CORE": 0,
    }
    if worker.level.counts_processes:
        most["RLIMIT_NPROC"] = limits.processes
    home = worker.home()
    return {
        "isolated": worker.level.isolation == "bubblewrap",
        "proc": worker.level.mounts_proc,
        "user": worker.level.user(),
        "home": home,
        "hidden": [path for path in python_folders() if path.startswith("/tmp/")],
        "folder": limits.folder,
        "inodes": limits.inodes,
        "limits": most,
        "files": [(name, 0o755 if isinstance(data, bytes) else 0o644) for name, data in program.files.items()],
        "sizes": [len(data) for data in files],
        "command": program.command,
        "source": program.source,
        "environment": {"PATH": os.defpath, "HOME": home, "LC_ALL": "C.UTF-8", **program.environment},
    }
