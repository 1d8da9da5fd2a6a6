"""Samplers as processes of this machine, each with a pipe; weights lie in memory that all of them see (weights_buffer.py).

On a CPU the processes share the cores. On GPUs a sampler has the next devices after the learner's, and with too few they share
them. One that spans several devices gets its weights by host memory: whole, they may fit none.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess

import torch
import torch.multiprocessing
from torch import Tensor

from ingot.data.engine.local_pool import hidden_main_module
from ingot.post.samplers.fleet import END_SECONDS, LOOK_SECONDS, Fleet, Inbox, Worker
from ingot.post.samplers.messages import Command, Lost, NewWeights, Stop
from ingot.post.samplers.weights_buffer import SLOTS, WeightsBuffer
from ingot.post.samplers.worker import SamplerConfig, serve


class Outbox:
    """Sends messages through a pipe, in a thread: one whose reader stands still blocks that thread only."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe
        self.messages: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._send, name="ingot-sampler-send", daemon=True)
        self.thread.start()

    def put(self, message: Command) -> None:
        """Send it after those before it."""
        self.messages.put(message)

    def close(self) -> None:
        """Send nothing more; the reader must be gone, or read."""
        self.messages.put(None)
        self.thread.join(END_SECONDS)

    def _send(self) -> None:
        with suppress(OSError):  # one that is gone is found by its closed pipe
            while (message := self.messages.get()) is not None:
                self.pipe.send(message)


class ProcessWorker(Worker):
    """A sampler's process and the pipe to it."""

    def __init__(self, inbox: Inbox, config: SamplerConfig, weights: WeightsBuffer) -> None:
        super().__init__()
        context = torch.multiprocessing.get_context("spawn")
        self.pipe, far_end = context.Pipe()
        self.process: SpawnProcess = context.Process(target=serve, args=(far_end, config, weights), daemon=True)
        with hidden_main_module():
            self.process.start()
        far_end.close()
        self.told = False  # to stop
        self.outbox = Outbox(self.pipe)
        threading.Thread(target=self._listen, args=(inbox,), name="ingot-sampler", daemon=True).start()

    def _listen(self, inbox: Inbox) -> None:
        try:
            while True:
                inbox.put((self, self.pipe.recv()))
        except (EOFError, OSError, TypeError):  # TypeError: the pipe was closed on this side while it was read
            inbox.put((self, Lost("its process has ended")))

    def say(self, message: Command) -> None:
        self.told = isinstance(message, Stop)
        self.outbox.put(message)

    def end(self) -> str:
        if self.told:
            self.process.join(END_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join(END_SECONDS)
        self.outbox.close()
        self.pipe.close()
        return f"exit code {self.process.exitcode}"


class LocalTransport(Fleet):
    """`count` processes."""

    def __init__(
        self, config: SamplerConfig, count: int, device: torch.device, silence: float, first_gpu: int = 1
    ) -> None:
        super().__init__(count, silence)
        self.config, self.device, self.first_gpu = config, device, first_gpu

    def make_room(self) -> None:
        while self.newest is not None and any(each.ready and each.taken < self.newest.version for each in self.workers):
            self.held += self.hear(LOOK_SECONDS)  # until nobody reads the slot that is written to

    def publish(self, weights: Iterable[tuple[str, Tensor]], version: int) -> NewWeights:
        slot = 0 if self.newest is None else (self.newest.where + 1) % SLOTS
        if not self.workers:
            where = self.device if len(self.config.devices) == 1 else torch.device("cpu")
            self.weights = WeightsBuffer(self.config.model, self.config.dtype, where)
        return NewWeights(version, slot, self.weights.write(slot, weights))

    def start(self, number: int) -> Worker:
        devices, span = self.config.devices, len(self.config.devices)
        if self.device.type == "cuda":
            first, count = self.first_gpu + number * span, torch.cuda.device_count()
            devices = tuple(f"cuda:{(first + rank) % count}" for rank in range(span))
        return ProcessWorker(self.inbox, replace(self.config, devices=devices), self.weights)
