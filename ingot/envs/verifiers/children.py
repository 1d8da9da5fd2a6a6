"""Small pools of warm processes in which libraries judge what a model wrote (`worker.py`), each of which can be killed.

SymPy cannot be stopped from within: an answer can make it compute for hours inside one operation. So a request has a number of
seconds of the child's processor, after which the child dies by its own alarm; the next request starts another. Processor seconds,
because a machine that is busy must not make an answer wrong. Three things can be between a question and its verdict:

    the question took too long, or ended the child       NoVerdict: whoever asks says whether the answer is to blame
    somebody killed the child, for its memory            it is asked once more
    no child starts, or none comes free                  VerifierError

Any thread may ask; each child serves one request at a time. Children end with this process, and a fork of this process starts
its own.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from ingot.envs.verifiers.errors import NoVerdict, VerifierError
from ingot.sandbox.json_process import JsonProcess
from ingot.workspace.packages import install_extra

WORKER = Path(__file__).with_name("worker.py")
CHILDREN = 2
START_SECONDS = 60.0  # to import the libraries on a busy machine
WAIT_SECONDS = 600.0  # for a child to be free; many threads may ask
BUSY = 20  # times as many seconds of the clock as of the processor
TOO_SLOW, ENDED = "took too long", "ended the process that compares"
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
        """The judge's answer, for which it may compute so many seconds."""
        place = f"{self.judge}, {json.dumps(request)[:200]}"
        if not self._free.acquire(timeout=WAIT_SECONDS):
            raise VerifierError(f"all {CHILDREN} processes were busy for {WAIT_SECONDS:.0f} seconds", place=self.judge)
        try:
            for _ in range(TRIES):
                answer, killed_by = self._ask(request, seconds)
                if answer is not None:
                    return answer
                if killed_by is None:
                    raise VerifierError(f"no verdict in {seconds * BUSY:g} seconds: the machine is busy", place=place)
                if killed_by != signal.SIGKILL:
                    raise NoVerdict(TOO_SLOW if killed_by == signal.SIGPROF else ENDED, place=place)
        finally:
            self._free.release()
        raise NoVerdict(ENDED, place=place)

    def _ask(self, request: dict[str, Any], seconds: float) -> tuple[dict[str, Any] | None, int | None]:
        """The answer; if there is none, the signal that ended the child, None if it goes on."""
        child, answer = self._take(), None
        try:
            answer = child.ask(request, seconds)
            return answer, child.killed_by
        finally:  # also when this thread is interrupted: an answer that comes late must not be the next request's
            if answer is None or child.requests >= REQUESTS:
                child.close()
            else:
                self._idle.append(child)

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
        command = [sys.executable, "-P", str(WORKER), judge]  # -P: `math` beside it must not stand for Python's
        self._process = JsonProcess(command, {"OMP_NUM_THREADS": "1"})
        if self._process.read(START_SECONDS) is None:
            self.close()
            problem = f"the process did not start in {START_SECONDS:.0f} seconds, or a library is missing"
            raise VerifierError(problem, place=f"{WORKER.name} {judge}", fix=install_extra("envs"))

    def ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any] | None:
        """The answer; None if the process has ended, or if it is far behind its time."""
        self.requests += 1
        return self._process.ask({**request, "seconds": seconds}, seconds * BUSY)

    @property
    def killed_by(self) -> int | None:
        """The signal that ended the process, 0 if it ended by itself, None if it goes on."""
        return self._process.killed_by

    @property
    def ended(self) -> bool:
        """Whether the process has died while it was idle."""
        return self._process.ended

    def close(self) -> None:
        """Kill the process and wait for it."""
        self._process.close()
