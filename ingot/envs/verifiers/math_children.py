"""A small pool of warm processes that compare expressions (`math_worker.py`), each of which can be killed.

SymPy cannot be stopped from within: an answer can make it compute for hours inside one operation. So a pair has a deadline, and
a child that misses it, or dies, is killed; the next pair starts another. Any thread may ask; each child serves one pair at a
time. Children end with this process, and a fork of this process starts its own.
"""

from __future__ import annotations

import atexit
import json
import os
import selectors
import subprocess
import sys
import threading
import time
from pathlib import Path

from ingot.envs.verifiers.errors import VerifierError
from ingot.sandbox.processes import end, has_ended

WORKER = Path(__file__).with_name("math_worker.py")
CHILDREN = 2
START_SECONDS = 60.0  # to import SymPy on a busy machine
WAIT_SECONDS = 600.0  # for a child to be free; many threads may ask
TRIES = 2  # a child may have been killed from outside, for its memory
PAIRS = 10_000  # after which a child is replaced: what the libraries remember grows
PACKAGES = "pip install 'ingot[envs]'"


def same_expression(reference: str, given: str, seconds: float) -> bool:
    """Whether math-verify finds `given` equal to `reference` within `seconds`; a VerifierError if there is no result."""
    return _pool.same(reference, given, seconds)


class _Child:
    """One process."""

    def __init__(self) -> None:
        self.pairs = 0
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(WORKER)],  # -P: the verifiers' own math.py must not stand for Python's
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        if self._read(START_SECONDS) is None:
            self.close()
            problem = f"the process that compares mathematics did not start in {START_SECONDS:.0f} seconds"
            raise VerifierError(problem, place=str(WORKER.name), fix=PACKAGES)

    def same(self, reference: str, given: str, seconds: float) -> bool | None:
        """The answer; None if the time is over or the process has ended."""
        self.pairs += 1
        request = json.dumps({"reference": reference, "given": given, "seconds": seconds})
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(request.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return None
        answer = self._read(seconds)
        return None if answer is None else bool(answer["same"])

    def _read(self, seconds: float) -> dict[str, bool] | None:
        assert self._process.stdout is not None
        pipe, data, over = self._process.stdout.fileno(), b"", time.monotonic() + seconds
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while not data.endswith(b"\n"):
                if not selector.select(max(0.0, over - time.monotonic())):
                    return None
                part = os.read(pipe, 65_536)
                if not part:
                    return None
                data += part
        return dict(json.loads(data))

    @property
    def ended(self) -> bool:
        """Whether the process has died while it was idle."""
        return has_ended(self._process)

    def close(self) -> None:
        """Kill the process and wait for it."""
        with self._process:  # closes its pipes
            end(self._process)


class _Pool:
    """At most `CHILDREN` processes, started when they are needed."""

    def __init__(self) -> None:
        self._free = threading.BoundedSemaphore(CHILDREN)
        self._idle: list[_Child] = []

    def same(self, reference: str, given: str, seconds: float) -> bool:
        if not self._free.acquire(timeout=WAIT_SECONDS):
            raise VerifierError(
                f"all {CHILDREN} processes that compare mathematics were busy for {WAIT_SECONDS:.0f} seconds"
            )
        over = time.monotonic() + seconds
        try:
            for _ in range(TRIES):
                result = self._ask(reference, given, max(0.0, over - time.monotonic()))
                if result is not None:
                    return result
                if time.monotonic() >= over:
                    break
        finally:
            self._free.release()
        problem = f"the comparison did not end in {seconds:.1f} seconds, or its process died"
        raise VerifierError(problem, place=f"answer {given[:80]!r} to {reference[:80]!r}")

    def _ask(self, reference: str, given: str, seconds: float) -> bool | None:
        child, result = self._take(), None
        try:
            result = child.same(reference, given, seconds)
        finally:  # also when this thread is interrupted: an answer that comes late must not be the next pair's
            if result is None or child.pairs >= PAIRS:
                child.close()
            else:
                self._idle.append(child)
        return result

    def _take(self) -> _Child:
        """A child that is alive."""
        while self._idle:
            child = self._idle.pop()
            if not child.ended:
                return child
            child.close()
        return _Child()

    def close(self) -> None:
        """End all idle children."""
        while self._idle:
            self._idle.pop().close()


def _begin() -> None:
    """Forget the children: those of the process before a fork are not ours to use."""
    global _pool
    _pool = _Pool()


_pool = _Pool()
atexit.register(lambda: _pool.close())
os.register_at_fork(after_in_child=_begin)
