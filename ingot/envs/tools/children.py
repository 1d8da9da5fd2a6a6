"""Functions in child processes, so that a call can be ended: a child that misses a deadline is killed with all that it started.

A child loads one file or module (worker.py) and answers one call at a time; it stays for the next call. Calls at the same time
have a child each. The user wrote these functions, so they run as the user; what a model writes runs in sandbox/.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingot.sandbox.json_process import JsonProcess
from ingot.workspace.errors import ArtifactError, RecipeError
from ingot.workspace.outside import spec_of

WORKER = Path(__file__).with_name("worker.py")
START_SECONDS = 60.0  # the user's file may import something large
MOST = max(
    4, os.cpu_count() or 1
)  # children that work at the same time; as many of one source are kept for the next call


@dataclass(frozen=True)
class ToolFunction:
    """A function by its name: `source` is a Python file or a module."""

    source: str
    name: str

    @staticmethod
    def of(function: Callable[..., Any]) -> ToolFunction:
        """The name by which a child finds a function; a RecipeError if it cannot."""
        name = getattr(function, "__qualname__", "")
        if not name.isidentifier() or function.__module__ == "__main__":
            fix = "write a function at the top level of a file, or `async def`, or make_tool(…, here=True) if it ends at once"
            raise RecipeError(f"a child process cannot find the tool {name or function!r} by its name", fix=fix)
        return ToolFunction(spec_of(function).rpartition(":")[0], name)


async def run_in_child(function: ToolFunction, arguments: Mapping[str, Any], deadline: float) -> str:
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
        self._process: JsonProcess | None = None
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
        return self._process is not None and not self._process.ended

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
                self._process.close()
                self._process = None

    def _start(self) -> JsonProcess | None:
        """The process, unless nobody waits for it any more."""
        with self._lock:
            if self._killed:
                return None
            if self._process is None or self._process.ended:
                self._process = JsonProcess([sys.executable, str(WORKER), self.source, json.dumps(sys.path)])
            return self._process

    def _ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any] | None:
        """The answer to a request; None if the time is over or the process ends."""
        process = self._start()
        return None if process is None else process.ask(request, seconds)


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
