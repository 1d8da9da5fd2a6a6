"""A sampler: a process with an engine of its own, which plays the groups that the learner asks for and never stops for training.

New weights are taken in flight, between two decoding steps (PipelineRL, arXiv 2509.19128; AReaL, arXiv 2505.24298): sequences
that are under way go on with them and keep the keys and values that older weights have computed. So one answer may come from
several versions; every token is stamped with the one that drew it. Of several versions that have come in, the newest is taken.

It ends when the learner says so or has closed the pipe, and at once when the learner's process is gone.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, Protocol

import torch
from torch import Tensor

from ingot.data.engine.local_pool import end_with_parent
from ingot.envs.config import TaskMixConfig
from ingot.envs.episode_plain import to_plain
from ingot.envs.rollout.episode_run import Limits
from ingot.envs.rollout.pausable import OrderPlayer
from ingot.envs.rollout.rollout import Order
from ingot.envs.tools.find import find_tools
from ingot.inference.divided.group import EngineGroup
from ingot.inference.engine import Engine
from ingot.inference.weights import empty_model
from ingot.model.config import ModelConfig
from ingot.model.transformer import Transformer
from ingot.post.samplers.listed import ListedTasks
from ingot.post.samplers.messages import (
    Beat,
    Cancel,
    Cancelled,
    Command,
    Event,
    Failed,
    Finished,
    Job,
    NewWeights,
    Ready,
    Stop,
    Taken,
)
from ingot.post.samplers.task_stream import ATTEMPT, TaskStream
from ingot.post.samplers.weights_buffer import WeightsBuffer
from ingot.tokens.chat import ChatFormat
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import CheckFailed, IngotError

BEAT_SECONDS = 0.1
SWITCH_SECONDS = 0.0005  # after which a thread that scores gives the interpreter back to the one that decodes
IDLE_SECONDS = 0.1  # at most, that an idle sampler waits for a message before it beats again


@dataclass(frozen=True)
class SamplerConfig:
    """All that a sampler must know besides weights; it is sent to its process."""

    model: ModelConfig
    tokenizer: Tokenizer
    dtype: torch.dtype
    devices: tuple[str, ...]  # one, or those that its engine is divided over
    threads: int  # of each of its processes
    tasks: TaskMixConfig
    tools: tuple[str, ...]
    seed: int
    batch: int  # tasks in a batch of the stream,
    steps: int  # and optimizer steps on it
    group: int
    slots: int
    length: int
    episode_seconds: float
    stops: tuple[str, ...] = ()  # texts that end a turn
    budgets: Mapping[str, int] = field(default_factory=dict)  # sampled tokens of an episode, by kind of task
    dropped: frozenset[str] = frozenset()  # names of tasks that do not come
    listed: ListedTasks | None = None  # tasks beside the stream


class Pipe(Protocol):
    """The sampler's end of its connection to the learner, as `multiprocessing` has it; one that is closed raises OSError."""

    def poll(self, timeout: float) -> bool:
        """Whether there is a message; waits so long for it."""

    def recv(self) -> Command:
        """The next message."""

    def send(self, obj: Event, /) -> None:
        """Tell the learner."""


class Weights(Protocol):
    """Where a transport puts weights."""

    def read(self, where: Any) -> Mapping[str, Tensor]:
        """The tensors that are there; they are copied before the next message is read."""


class Gone(Exception):
    """The learner needs this sampler no longer."""


class Sampler:
    """The engine, the jobs that wait, and what is told about itself."""

    def __init__(self, pipe: Pipe, config: SamplerConfig, weights: Weights) -> None:
        self.pipe, self.config, self.weights = pipe, config, weights
        model = make_model(config)
        model.tokenizer = config.tokenizer
        self.engine = Engine(model, slots=config.slots, length=config.length)
        own = config.batch, config.steps, config.dropped, config.listed
        self.stream = TaskStream(config.tasks, config.seed, *own)
        self.player = OrderPlayer(
            self.engine,
            ChatFormat(config.tokenizer),
            self.stream.mix.kinds,
            group=config.group,
            at_once=config.slots,
            tools=find_tools(config.tools),
            between=self._between,
        )
        self.jobs: deque[Job] = deque()
        self.began: dict[int, int] = {}  # the version with which each group in play began
        self.beaten, self.idle, self.tokens = time.monotonic(), 0.0, 0

    def run(self) -> None:
        """Play, until the learner needs it no longer."""
        self._say(Ready())
        for order, episodes in self.player.play(self._orders()):
            began = self.began.pop(order.number)
            if episodes is None:
                self._say(Cancelled(order.number))
            else:
                self._say(Finished(order.number, began, tuple(to_plain(each) for each in episodes)))

    def _orders(self) -> Iterator[Order | None]:
        while True:
            if not self.jobs:
                yield None
                continue
            job = self.jobs.popleft()
            own = self.config
            seconds = own.episode_seconds
            limits = Limits(
                job.max_new_tokens, own.length, stops=own.stops, episode_seconds=seconds, budgets=own.budgets
            )
            self.began[job.number] = self.engine.version
            seed = self.stream.sample_seed(job.number) + job.attempt * ATTEMPT
            task, environment = self.stream[job.number], self.stream.environment(job.number)
            yield Order(job.number, task, seed, limits, job.temperature, job.samples, environment)

    def _between(self) -> None:
        """Between two decoding steps: read what the learner has sent, and beat."""
        waited = time.monotonic()
        idle = not self.jobs and not self.began
        newest: NewWeights | None = None
        try:
            while self.pipe.poll(IDLE_SECONDS if idle else 0.0):
                message = self.pipe.recv()
                idle = False
                match message:
                    case Stop():
                        raise Gone
                    case NewWeights():
                        newest = message
                    case Cancel():
                        if message.number in self.began:
                            self.player.cancel(message.number)
                    case Job():
                        self.jobs.append(message)
        except (EOFError, OSError) as error:
            raise Gone from error
        now = time.monotonic()
        if not self.began:
            self.idle += now - waited
        if newest is not None:
            self._take(newest)
        if now - self.beaten >= BEAT_SECONDS:
            made = self.engine.stats.generated_tokens
            self._say(Beat(now - self.beaten, self.idle, made - self.tokens, self.player.oldest()))
            self.beaten, self.idle, self.tokens = now, 0.0, made

    def _take(self, new: NewWeights) -> None:
        self.engine.update(self.weights.read(new.where), new.version)
        if self.engine.checksum != new.checksum:
            raise CheckFailed(f"the weights of version {new.version} did not arrive as they were sent", place="sampler")
        self._say(Taken(new.version))

    def _say(self, event: Event) -> None:
        try:
            self.pipe.send(event)
        except (BrokenPipeError, OSError) as error:
            raise Gone from error


def make_model(config: SamplerConfig) -> Transformer:
    """A model for weights to come, on one device, or divided over several."""
    if len(config.devices) > 1:
        return EngineGroup(config.model, config.dtype, config.devices, config.threads).model
    with torch.device(config.devices[0]):
        return empty_model(config.model, config.dtype)


def run_sampler(pipe: Pipe, config: SamplerConfig, weights: Weights) -> None:
    """Run a sampler in this thread; a fatal error is sent to the learner."""
    torch.set_num_threads(config.threads)
    sys.setswitchinterval(SWITCH_SECONDS)
    if config.devices[0].startswith("cuda"):
        torch.cuda.set_device(config.devices[0])  # kernels are launched on the current device
    with suppress(Gone):
        try:
            sampler = Sampler(pipe, config, weights)
            with closing(sampler.engine):
                sampler.run()
        except IngotError as error:
            with suppress(BrokenPipeError, OSError):
                pipe.send(Failed(str(error)))


def serve(pipe: Connection, config: SamplerConfig, weights: WeightsBuffer) -> None:
    """What a process of this machine runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the learner's, which closes the pipe
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=end_with_parent, daemon=True).start()
    run_sampler(pipe, config, weights)
