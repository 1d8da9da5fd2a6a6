"""Samplers as processes of this machine, each with a pipe; weights lie in memory that all of them see (weights_buffer.py).

On a CPU the processes share the cores. On GPUs a sampler has the next device after the learner's, and with one device they share
it. A thread for each sampler empties its pipe, so that a sampler never waits for a learner that is training.

A sampler whose process ends, or that was silent for `silence` seconds (it beats ten times a second), is killed and started again.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from multiprocessing.context import SpawnProcess

import torch
import torch.multiprocessing
from torch import Tensor

from ingot.data.engine.local_pool import hidden_main_module
from ingot.post.samplers.messages import Event, Failed, Finished, Job, Lost, NewWeights, Ready, Stop, Taken
from ingot.post.samplers.transport import Transport
from ingot.post.samplers.weights_buffer import SLOTS, WeightsBuffer
from ingot.post.samplers.worker import SamplerConfig, serve
from ingot.workspace.errors import CheckFailed

END_SECONDS = 5.0  # what a sampler that was told to end gets before it is killed
LOOK_SECONDS = 0.2  # between two looks at the clock while nothing is said
START_SECONDS = 900.0  # what a sampler gets until it is ready
STARTS = 3  # of a sampler in a row, without a finished group between them


class Worker:
    """A sampler's process, the pipe to it, and what is known about it."""

    def __init__(
        self, inbox: queue.SimpleQueue[tuple[Worker, Event]], config: SamplerConfig, weights: WeightsBuffer
    ) -> None:
        context = torch.multiprocessing.get_context("spawn")
        self.pipe, far_end = context.Pipe()
        self.process: SpawnProcess = context.Process(target=serve, args=(far_end, config, weights), daemon=True)
        with hidden_main_module():
            self.process.start()
        far_end.close()
        self.ready, self.waiting = False, list[Job]()  # jobs for a sampler that is still starting
        self.taken = -1  # the version that it samples with
        self.told = False  # to stop
        self.heard = time.monotonic()
        threading.Thread(target=self._listen, args=(inbox,), name="ingot-sampler", daemon=True).start()

    def _listen(self, inbox: queue.SimpleQueue[tuple[Worker, Event]]) -> None:
        try:
            while True:
                inbox.put((self, self.pipe.recv()))
        except (EOFError, OSError, TypeError):  # TypeError: the pipe was closed on this side while it was read
            inbox.put((self, Lost("its process has ended")))

    def say(self, message: Job | NewWeights | Stop) -> None:
        """Send; one that is gone is found by its closed pipe."""
        self.told = isinstance(message, Stop)
        with suppress(BrokenPipeError, OSError):
            self.pipe.send(message)

    def end(self) -> None:
        """End the process, whatever it is doing; one that was told to stop gets a while for that."""
        if self.told:
            self.process.join(END_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join(END_SECONDS)
        self.pipe.close()


class LocalTransport(Transport):
    """`count` processes, started by the first weights."""

    def __init__(
        self, config: SamplerConfig, count: int, device: torch.device, silence: float, first_gpu: int = 1
    ) -> None:
        self.config, self.count, self.device, self.silence, self.first_gpu = config, count, device, silence, first_gpu
        self.newest: NewWeights | None = None
        self.inbox: queue.SimpleQueue[tuple[Worker, Event]] = queue.SimpleQueue()
        self.workers: list[Worker] = []
        self.starts = [0] * count
        self.held: list[tuple[int, Event]] = []  # said while weights were sent

    def send_weights(self, state: Mapping[str, Tensor], version: int) -> None:
        slot = 0 if self.newest is None else (self.newest.slot + 1) % SLOTS
        if not self.workers:
            self.weights = WeightsBuffer.of(self.config.model, self.config.dtype, self.device)
        while self.newest is not None and any(each.ready and each.taken < self.newest.version for each in self.workers):
            self.held += self._hear(LOOK_SECONDS)  # until nobody reads the slot that is written to
        self.newest = NewWeights(version, slot, self.weights.write(slot, state))
        while len(self.workers) < self.count:
            self.workers.append(self._start(len(self.workers)))
        for each in self.workers:
            if each.ready:
                each.say(self.newest)

    def send(self, sampler: int, job: Job) -> None:
        worker = self.workers[sampler]
        if worker.ready:
            worker.say(job)
        else:
            worker.waiting.append(job)

    def receive(self, seconds: float) -> list[tuple[int, Event]]:
        held, self.held = self.held, []
        return held + self._hear(0.0 if held else seconds)

    def close(self) -> None:
        for worker in self.workers:
            if worker.ready:
                worker.say(Stop())
        for worker in self.workers:
            worker.end()
        self.workers, self.newest, self.held = [], None, []
        self.starts = [0] * self.count

    def _hear(self, seconds: float) -> list[tuple[int, Event]]:
        """What was said; starts again who is gone or silent."""
        said: list[tuple[int, Event]] = []
        with suppress(queue.Empty):
            said += self._note(*self.inbox.get(timeout=seconds) if seconds > 0 else self.inbox.get_nowait())
            while True:
                said += self._note(*self.inbox.get_nowait())
        now = time.monotonic()
        for number, worker in enumerate(self.workers):
            allowed = self.silence if worker.ready else START_SECONDS
            if now - worker.heard > allowed:
                said.append((number, self._replace(number, Lost(f"it was silent for {allowed:g} seconds"))))
        return said

    def _note(self, worker: Worker, event: Event) -> list[tuple[int, Event]]:
        """Act on what a sampler said; what is of interest to others. One that was replaced is not heard any more."""
        if worker not in self.workers:
            return []
        number, worker.heard = self.workers.index(worker), time.monotonic()
        match event:
            case Ready():
                worker.ready = True
                assert self.newest is not None
                worker.say(self.newest)
                for job in worker.waiting:
                    worker.say(job)
                return []
            case Taken():
                worker.taken = event.version
                return []
            case Failed():
                raise CheckFailed(f"a sampler failed: {event.problem}", place=f"sampler {number}")
            case Lost():
                return [(number, self._replace(number, event))]
            case Finished():
                self.starts[number] = 0
        return [(number, event)]

    def _replace(self, number: int, lost: Lost) -> Lost:
        worker = self.workers[number]
        worker.end()
        code = worker.process.exitcode
        if self.starts[number] >= STARTS:
            raise CheckFailed(
                f"the sampler ended {STARTS} times without a finished group: {lost.reason} (exit code {code})",
                place=f"sampler {number}",
                fix="look at what it printed; with too little memory lower slots",
            )
        self.workers[number] = self._start(number)
        return lost

    def _start(self, number: int) -> Worker:
        self.starts[number] += 1
        device = self.config.device
        if self.device.type == "cuda":
            device = f"cuda:{(self.first_gpu + number) % torch.cuda.device_count()}"
        return Worker(self.inbox, replace(self.config, device=device), self.weights)
