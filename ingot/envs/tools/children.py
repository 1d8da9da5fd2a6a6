"""Functions in child processes, so that a call can be ended: a child that misses a deadline is killed with all that it started.

A child loads one file or module (worker.py) and answers one call at a time; it stays for the next call. Calls at the same time
have a child each. The user wrote these functions, so they run as the user; what a model writes runs in sandbox/.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import selectors
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingot.sandbox.processes import end
from ingot.workspace.errors import ArtifactError, RecipeError
from ingot.workspace.outside import spec_of

WORKER = Path(__file__).with_name("worker.py")
START_SECONDS = 60.0  # the user's file may import something large
MOST = max(
    4, os.cpu_count() or 1
)  # children that work at the same time; as many of one source are kept for the next call
END_SECONDS = 10.0  # for a process that has closed its pipe
LINE = 2**26  # bytes of an answer at most


@dataclass(frozen=True)
class Function:
    """A function by its name: `source` is a Python file or a module."""

    source: str
    name: str

    @staticmethod
    def of(function: Callable[..., Any]) -> Function:
        """The name by which a child finds a function; a RecipeError if it cannot."""
        name = getattr(function, "__qualname__", "")
        if not name.isidentifier() or function.__module__ == "__main__":
            fix = "write a function at the top level of a file, or `async def`, or make_tool(…, here=True) if it ends at once"
            raise RecipeError(f"a child process cannot find the tool {name or function!r} by its name", fix=fix)
        return Function(spec_of(function).rpartition(":")[0], name)


async def run_in_child(function: Function, arguments: Mapping[str, Any], deadline: float) -> str:
    """What the function says within the deadline."""
    child = Child(function.source)

    def work() -> str:
        with _turns:  # waiting for a child is no part of the deadline
            child.adopt(_take_idle(function.source))
            text = child.call(function.name, arguments, deadline)
        _keep(child)
        return text

    try:
        return await asyncio.to_thread(work)
    except BaseException:
        child.kill()  # also ends the thread: its answer must not become the answer to the next call
        raise


class Child:
    """The process, one call at a time."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()  # of starting and killing
        self._killed = False  # it must not start again for a call that nobody waits for

    def adopt(self, other: Child | None) -> None:
        """Take over the process of another, unless this one was killed before it began."""
        with self._lock:
            if other is not None and not self._killed:
                self._process, other._process = other._process, None

    @property
    def alive(self) -> bool:
        """Whether it can take a call."""
        return self._process is not None and self._process.poll() is None

    def describe(self) -> list[dict[str, Any]]:
        """The schemas of all public functions."""
        answer = self._ask({"describe": True}, START_SECONDS)
        if answer is None or "error" in answer:
            self.kill()
            raise ArtifactError(
                answer["error"] if answer else f"the file was not loaded in {START_SECONDS:.0f} seconds, or it exits",
                place=self.source,
                fix="give a file whose public functions have hints for all parameters and a docstring",
            )
        return list(answer["schemas"])

    def call(self, name: str, arguments: Mapping[str, Any], deadline: float) -> str:
        """What the function says within the deadline; loading the file is not part of it."""
        if not self.alive:
            ready = self._ask({}, START_SECONDS)
            if ready is None or "error" in ready:
                self.kill()
                return (
                    f"error: {ready['error'] if ready else f'not loaded in {START_SECONDS:.0f} seconds, or it exits'}"
                )
        answer = self._ask({"name": name, "arguments": dict(arguments)}, deadline)
        if answer is None:
            ended = not self.alive
            self.kill()
            return "error: the tool's process ended" if ended else f"error: no answer in {deadline:g} seconds"
        return str(answer.get("result", f"error: {answer.get('error')}"))

    def kill(self) -> None:
        """End the process and all that it started."""
        with self._lock:
            self._killed = True
            if self._process is not None:
                with self._process:  # closes its pipes
                    end(self._process)
                self._process = None

    def _start(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._killed:
                raise OSError("it was killed")
            if self._process is None or self._process.poll() is not None:
                self._process = subprocess.Popen(
                    [sys.executable, str(WORKER), self.source, json.dumps(sys.path)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # Ctrl-C stops the answer that is printed, not the tools
                )
            return self._process

    def _ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any] | None:
        """The answer to a request; None if the time is over or the process ends."""
        try:
            process = self._start()
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            return _read(process.stdout.fileno(), seconds)
        except EOFError:
            process.wait(timeout=END_SECONDS)
            return None
        except (ValueError, OSError):  # it has ended, or was killed by another thread
            return None


def _read(pipe: int, seconds: float) -> dict[str, Any] | None:
    data, stop = b"", time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while not data.endswith(b"\n"):
            if not selector.select(max(0.0, stop - time.monotonic())):
                return None
            part = os.read(pipe, 65_536)
            if not part:
                raise EOFError
            if len(data) > LINE:
                return None
            data += part
    return dict(json.loads(data))


_turns = threading.BoundedSemaphore(MOST)
_idle: defaultdict[str, list[Child]] = defaultdict(list)
_idle_lock = threading.Lock()


def _take_idle(source: str) -> Child | None:
    with _idle_lock:
        return _idle[source].pop() if _idle[source] else None


def _keep(child: Child) -> None:
    with _idle_lock:
        if child.alive and len(_idle[child.source]) < MOST:
            _idle[child.source].append(child)
            return
    child.kill()


@atexit.register
def end_idle_children() -> None:
    """End the children that wait for a call."""
    with _idle_lock:
        children = [child for waiting in _idle.values() for child in waiting]
        _idle.clear()
    for child in children:
        child.kill()
