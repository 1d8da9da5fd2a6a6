"""The process of another Python in which environments of `verifiers` play (`_verifiers_worker.py`), and talks with it.

One process plays many episodes at the same time. Each is a talk: we say something, and are told one thing back. Lines of JSON go
over its pipes; a thread listens as long as a talk is open. A process that dies fails the talks that are open, and the next one
starts another process. It ends with ours, also if ours is killed, because its pipe closes then; what it has started (tool
servers, agents' programs) carries a mark in its surroundings and is killed with it.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import secrets
import select
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from ingot.envs.errors import EnvironmentFailed
from ingot.sandbox.processes import end, has_ended
from ingot.workspace.errors import RecipeError

WORKER = Path(__file__).with_name("_verifiers_worker.py")
MARK = "INGOT_VERIFIERS_CHILD"
WRITE_SECONDS = 30.0  # for the process to take a line
CLOSE_SECONDS = 20.0  # for the process to end what it has started
CANCEL_SECONDS = 10.0  # for an episode to end when nobody waits for it any more
LOOK_SECONDS = 0.5  # between two looks whether the process lives, while it says nothing
TAIL = 600  # bytes of what the process complained about that a message shows

Line = dict[str, Any]


class ProcessTalk:
    """One conversation with the process: an episode, or the loading of the environment."""

    def __init__(self, child: VerifiersProcess, number: int) -> None:
        self.child, self.number = child, number
        self.ended = self._closing = False
        self._answer: Future[Line] = Future()

    def send(self, line: Mapping[str, Any]) -> Future[Line]:
        """Send a line and return a future of the reply; it raises `EnvironmentFailed` if the process dies first."""
        self._answer = Future()
        self._answer.set_running_or_notify_cancel()  # a caller that gives up waiting does not take it from the listener
        self.child.send(self, line)
        return self._answer

    def receive(self, line: Line) -> None:
        """The listener has a line for this talk."""
        self.ended = self.ended or "end" in line
        if not self._answer.done() and (self.ended or not self._closing):
            self._answer.set_result(line)

    def lose(self, error: EnvironmentFailed) -> None:
        """The process is gone."""
        self.ended = True
        if not self._answer.done():
            self._answer.set_exception(error)

    def close(self) -> None:
        """End it, if it has not ended; a process that does not do so is killed, with all its episodes."""
        if self.ended:
            return
        self._closing = True  # what else it says is of no use
        try:
            self.send({"cancel": True}).result(CANCEL_SECONDS)
        except EnvironmentFailed:
            return
        except TimeoutError:
            self.child.kill()


class VerifiersProcess:
    """The process. Any thread may use it."""

    def __init__(self, python: str, folders: tuple[str, ...]) -> None:
        self.python, self.tasks = python, list[Line]()
        self._mark = secrets.token_hex(16)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._lock, self._writing = threading.Lock(), threading.Lock()
        self._talks: dict[int, ProcessTalk] = {}
        self._numbers = iter(range(1 << 62))
        self._listener: threading.Thread | None = None
        surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # that is ours
        surroundings |= {MARK: self._mark, "PYTHONPATH": os.pathsep.join(folders)}
        try:
            self._process = subprocess.Popen(
                [python, "-P", "-u", str(WORKER)],  # -P: files beside it must not stand for Python's
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=surroundings,
                start_new_session=True,  # Ctrl-C stops whoever waits for it
            )
        except OSError as error:
            fix = "python3 -m venv .venv-verifiers && .venv-verifiers/bin/pip install verifiers==0.4.0"
            raise RecipeError(f"this Python cannot be started: {error.strerror}", place=python, fix=fix) from error
        assert self._process.stdin is not None and self._process.stdout is not None
        self._in, self._out, self._rest = self._process.stdin.fileno(), self._process.stdout.fileno(), b""
        os.set_blocking(self._in, False)

    @property
    def alive(self) -> bool:
        """Whether it can play."""
        try:
            return not has_ended(self._process)
        except ChildProcessError:  # the listener has just found its end
            return False

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def load(self, load: Mapping[str, Any], seconds: float) -> None:
        """Let it load an environment, and know its tasks."""
        place = f"{load['environment']}, {self.python}"
        try:
            told = self.talk().send({"load": load}).result(seconds)["end"]
        except TimeoutError as error:
            fix = "give it more load_seconds"
            raise RecipeError(f"the environment was not loaded in {seconds:g} seconds", place=place, fix=fix) from error
        except EnvironmentFailed as error:
            fix = "is this a Python with verifiers 0.4? import the environment with it by hand"
            raise RecipeError(error.problem, place=place, fix=fix) from error
        if "error" in told:
            raise RecipeError(told["error"], place=place, fix=told["fix"])
        self.tasks = told["tasks"]

    def talk(self) -> ProcessTalk:
        """A new conversation."""
        with self._lock:
            return ProcessTalk(self, next(self._numbers))

    def send(self, talk: ProcessTalk, line: Mapping[str, Any]) -> None:
        """Say something in a talk, and listen from now on."""
        with self._lock:
            self._talks[talk.number] = talk
            if self._listener is None:
                self._listener = threading.Thread(target=self._listen, name="ingot-verifiers", daemon=True)
                self._listener.start()
        try:
            self._write(json.dumps({"talk": talk.number, **line}).encode() + b"\n")
        except TimeoutError:
            self.kill()
        except OSError:  # it has died: the listener finds that, and tells all talks
            pass

    def _write(self, data: bytes) -> None:
        rest, stop = memoryview(data), time.monotonic() + WRITE_SECONDS
        with self._writing:
            while rest:
                if not select.select([], [self._in], [], max(0.0, stop - time.monotonic()))[1]:
                    raise TimeoutError
                rest = rest[os.write(self._in, rest) :]

    def _listen(self) -> None:
        """Hand on what the process says, until no talk is open or it has died."""
        while (data := self._read_line()) is not None:
            line = json.loads(data)
            with self._lock:
                talk = self._talks.get(line["talk"])
                if talk is not None and "end" in line:
                    del self._talks[talk.number]
                done = not self._talks
                if done:
                    self._listener = None
            if talk is not None:
                talk.receive(line)
            if done:
                return
        self.kill()
        with self._lock:
            lost, self._talks = list(self._talks.values()), {}
            self._listener = None
        error = EnvironmentFailed(f"the process of the environment has ended{self._stderr_tail()}")
        for talk in lost:
            talk.lose(error)

    def _read_line(self) -> bytes | None:
        """The next line; None when the process has died, even if something that it has started holds its pipe."""
        while b"\n" not in self._rest:
            if select.select([self._out], [], [], LOOK_SECONDS)[0]:
                part = os.read(self._out, 65_536)
                if not part:
                    return None
                self._rest += part
            elif not self.alive:
                return None
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _stderr_tail(self) -> str:
        """How it ended, and what it said last."""
        code = self._process.poll()
        with contextlib.suppress(OSError, ValueError):
            size = self._errors.seek(0, os.SEEK_END)
            self._errors.seek(max(0, size - TAIL))
            said = self._errors.read().decode(errors="replace").strip()
            return f" (exit code {code}){f': …{said}' if said else ''}"
        return f" (exit code {code})"

    def kill(self) -> None:
        """End it at once, with all that it has started."""
        end(self._process)
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):  # it has ended meanwhile, or is another user's
                if f"{MARK}={self._mark}".encode() in (process / "environ").read_bytes().split(b"\0"):
                    os.kill(int(process.name), signal.SIGKILL)

    def close_pipe(self) -> None:
        """Close its pipe, which it reads as the end."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Let it end what it has started; then kill what is left."""
        self.close_pipe()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        self.kill()
        if (listener := self._listener) is not None:
            listener.join(CLOSE_SECONDS)
        with self._process, self._errors:  # closes the pipes
            pass


_children: dict[tuple[str, ...], VerifiersProcess] = {}
_starting = threading.Lock()


def child_of(python: str, folders: tuple[str, ...], load: Mapping[str, Any], seconds: float) -> VerifiersProcess:
    """The process in which an environment is loaded; started if there is none, or if it has died."""
    key = (python, *folders, json.dumps(load, sort_keys=True))
    with _starting:
        child = _children.get(key)
        if child is not None and child.alive:
            return child
        if child is not None:
            del _children[key]
            child.close()
        child = VerifiersProcess(python, folders)
        with contextlib.ExitStack() as undone:  # a process that did not load, or was interrupted in it, does not stay
            undone.callback(child.close, seconds=0.0)
            child.load(load, seconds)
            undone.pop_all()
        _children[key] = child
        return child


@atexit.register
def close_children() -> None:
    """End all processes."""
    for child in list(_children.values()):
        child.close_pipe()  # all at the same time: each takes seconds to end what it has started
    while _children:
        _children.popitem()[1].close()


def _forget_children() -> None:
    """Those of the process before a fork are not ours to use."""
    global _starting
    _starting = threading.Lock()
    _children.clear()


os.register_at_fork(after_in_child=_forget_children)
