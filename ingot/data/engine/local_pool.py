"""A pool of processes of this machine, one call at a time in each, over a pipe of its own.

So it is known exactly which call a dead process was carrying out. Three things that a bare process pool gets wrong here:
- a process is started by `spawn` and would run the caller's main script again, so that `ingot.run(…)` in a script
  without an `if __name__ == "__main__"` would start itself again and again: the main module is hidden while processes start;
- Ctrl-C reaches the whole process group: workers ignore it and leave stopping to the main process;
- a worker would outlive a main process that was killed: each one watches its parent and ends with it.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
import types
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from ingot.data.engine.pool import CallResult, PoolCall, WorkPool, answer

END_SECONDS = 5.0  # what a worker that was told to end gets before it is killed


class PoolProcess:
    """A process, the pipe to it, and the call it is busy with."""

    def __init__(self, prepare: Callable[[], None] | None) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, far_end = context.Pipe()
        self.process: SpawnProcess = context.Process(target=serve, args=(far_end, prepare), daemon=True)
        with hidden_main_module(), one_thread_each():
            self.process.start()
        far_end.close()
        self.busy: int | None = None

    def begin(self, call: PoolCall) -> None:
        """Send a call."""
        self.busy = call.number
        with suppress(BrokenPipeError):  # it died while it had nothing to do: the pipe says so when it is read
            self.pipe.send(call)

    def end(self) -> None:
        """End the process, whatever it is doing."""
        self.pipe.close()
        self.process.terminate()
        self.process.join(END_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join(END_SECONDS)


class LocalPool(WorkPool):
    """`workers` processes. Each calls `prepare` when it starts: a function at the top of a module."""

    def __init__(self, workers: int, prepare: Callable[[], None] | None = None) -> None:
        self.width = workers
        self.prepare = prepare
        self.workers: list[PoolProcess] = []
        self.waiting: deque[PoolCall] = deque()

    @property
    def running(self) -> bool:
        return bool(self.workers)

    def start(self) -> None:
        while len(self.workers) < self.width:
            self.workers.append(PoolProcess(self.prepare))

    def submit(self, call: PoolCall) -> None:
        self.waiting.append(call)
        self._hand_out()

    def _hand_out(self) -> None:
        for worker in self.workers:
            if self.waiting and worker.busy is None:
                worker.begin(self.waiting.popleft())
        while self.waiting and len(self.workers) < self.width:
            self.workers.append(PoolProcess(self.prepare))
            self.workers[-1].begin(self.waiting.popleft())

    def wait(self, seconds: float) -> list[CallResult]:
        by_pipe = {worker.pipe: worker for worker in self.workers if worker.busy is not None}
        answers = []
        for pipe in wait(list(by_pipe), seconds):
            assert isinstance(pipe, Connection)
            answers.append(self._receive(by_pipe[pipe]))
        self._hand_out()
        return answers

    def _receive(self, worker: PoolProcess) -> CallResult:
        """The answer of a worker whose pipe has something: an answer, or its end."""
        assert worker.busy is not None
        number, worker.busy = worker.busy, None
        try:
            received = worker.pipe.recv()
            assert isinstance(received, CallResult)
            return received
        except (EOFError, OSError):
            worker.process.join(END_SECONDS)
            code = worker.process.exitcode
            worker.end()
            self.workers.remove(worker)
            reason = f"ended with exit code {code}" if code is None or code >= 0 else f"was killed by signal {-code}"
            return CallResult(number, lost=reason)

    def close(self) -> None:
        for worker in self.workers:
            worker.process.terminate()
        for worker in self.workers:
            worker.end()
        self.workers, self.waiting = [], deque()


def available_processors() -> int:
    """Processors that this process may use; containers often allow fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def hidden_main_module() -> Iterator[None]:
    """While inside, a process started by `spawn` does not run the caller's main script."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextmanager
def one_thread_each() -> Iterator[None]:
    """While inside, processes that start use one thread: there is already one of them for each processor."""
    names = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "RAYON_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def serve(pipe: Connection, prepare: Callable[[], None] | None) -> None:
    """What a worker does: calls, until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=end_with_parent, daemon=True).start()
    if prepare is not None:
        prepare()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)  # readers make millions of small objects without a cycle among them
    while True:
        try:
            call = pipe.recv()
        except (EOFError, OSError):
            return
        pipe.send(answer(call))
        del call


def end_with_parent() -> None:
    """Leave as soon as the main process is gone, however it went."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
