"""Small pools of warm processes in which libraries judge what a model wrote (`worker.py`), each of which can be killed.

SymPy cannot be stopped from within: an answer can make it compute for hours inside one operation. So a request has a deadline,
and a child that misses it, or dies, is killed; the next request starts another. Any thread may ask; each child serves one
request at a time. Children end with this process, and a fork of this process starts its own.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

from ingot.envs.verifiers.errors import VerifierError
from ingot.sandbox.json_process import JsonProcess
from ingot.workspace.packages import install_extra

WORKER = Path(__file__).with_name("worker.py")
CHILDREN = 2
START_SECONDS = 60.0  # to import the libraries on a busy machine
WAIT_SECONDS = 600.0  # for a child to be free; many threads may ask
TRIES = 2  # a child may have been killed from outside, for its memory
REQUESTS = 10_000  # after which a child is replaced: what the libraries remember grows


class Children:
    """At most `CHILDREN` processes of one judge, started when they are needed."""

    def __init__(self, judge: str) -> None:
        self.judge = judge
        self._begin()
        atexit.register(self.close)
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        """Without children: those of the process before a fork are not ours to use."""
        self._free = threading.BoundedSemaphore(CHILDREN)
        self._idle: list[_Child] = []

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """The judge's answer; a VerifierError if there is none within `seconds`."""
        if not self._free.acquire(timeout=WAIT_SECONDS):
            raise VerifierError(f"all {CHILDREN} processes were busy for {WAIT_SECONDS:.0f} seconds", place=self.judge)
        over = time.monotonic() + seconds
        try:
            for _ in range(TRIES):
                answer = self._ask(request, max(0.0, over - time.monotonic()))
                if answer is not None:
                    return answer
                if time.monotonic() >= over:
                    break
        finally:
            self._free.release()
        problem = f"no verdict in {seconds:.1f} seconds, or the process died"
        raise VerifierError(problem, place=f"{self.judge}, {json.dumps(request)[:200]}")

    def _ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any] | None:
        child, answer = self._take(), None
        try:
            answer = child.ask(request, seconds)
        finally:  # also when this thread is interrupted: an answer that comes late must not be the next request's
            if answer is None or child.requests >= REQUESTS:
                child.close()
            else:
                self._idle.append(child)
        return answer

    def _take(self) -> _Child:
        """A child that is alive."""
        while self._idle:
            child = self._idle.pop()
            if not child.ended:
                return child
            child.close()
        return _Child(self.judge)

    def close(self) -> None:
        """End all idle children."""
        while self._idle:
            self._idle.pop().close()


class _Child:
    """One process."""

    def __init__(self, judge: str) -> None:
        self.requests = 0
        command = [sys.executable, "-P", str(WORKER), judge]  # -P: math.py beside it must not stand for Python's
        self._process = JsonProcess(command, {"OMP_NUM_THREADS": "1"})
        if self._process.read(START_SECONDS) is None:
            self.close()
            problem = f"the process did not start in {START_SECONDS:.0f} seconds, or a library is missing"
            raise VerifierError(problem, place=f"{WORKER.name} {judge}", fix=install_extra("envs"))

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any] | None:
        """The answer; None if the time is over or the process has ended."""
        self.requests += 1
        return self._process.ask({**request, "seconds": seconds}, seconds)

    @property
    def ended(self) -> bool:
        """Whether the process has died while it was idle."""
        return self._process.ended

    def close(self) -> None:
        """Kill the process and wait for it."""
        self._process.close()
