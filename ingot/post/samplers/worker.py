"""A sampler: a process with an engine of its own, which plays the groups that the learner asks for and never stops for training.

New weights are taken in flight, between two decoding steps (PipelineRL, arXiv 2509.19128; AReaL, arXiv 2505.24298): sequences
that are under way go on with them and keep the keys and values that older weights have computed. So one answer may come from
several versions; every token is stamped with the one that drew it. Of several versions that have come in, the newest is taken.

It ends when the learner says so or has closed the pipe, and at once when the learner's process is gone.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection

import torch

from ingot.data.engine.local_pool import end_with_parent
from ingot.envs.config import TaskMixConfig
from ingot.envs.play import Limits
from ingot.envs.rollout import Drawing, Order, play_orders
from ingot.envs.tools.find import find_tools
from ingot.inference.checksum import weights_checksum
from ingot.inference.engine import Engine
from ingot.model.config import ModelConfig
from ingot.model.transformer import Transformer
from ingot.post.samplers.messages import Beat, Event, Failed, Finished, Job, NewWeights, Ready, Stop, Taken, to_plain
from ingot.post.samplers.task_stream import TaskStream
from ingot.post.samplers.weights_buffer import WeightsBuffer
from ingot.tokens.chat import ChatFormat
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import CheckFailed, IngotError

BEAT_SECONDS = 0.1
IDLE_SECONDS = 0.1  # at most, that an idle sampler waits for a message before it beats again


@dataclass(frozen=True)
class SamplerConfig:
    """All that a sampler must know besides weights; it is sent to its process."""

    model: ModelConfig
    tokenizer: Tokenizer
    dtype: torch.dtype
    device: str
    threads: int
    tasks: TaskMixConfig
    tools: tuple[str, ...]
    seed: int
    batch: int  # tasks in a batch of the stream,
    steps: int  # and optimizer steps on it
    group: int
    slots: int
    length: int
    temperature: float
    episode_seconds: float
    stops: tuple[str, ...] = ()  # texts that end a turn
    dropped: frozenset[str] = frozenset()  # names of tasks that do not come


class Gone(Exception):
    """The learner needs this sampler no longer."""


class Sampler:
    """The engine, the jobs that wait, and what is told about itself."""

    def __init__(self, pipe: Connection, config: SamplerConfig, weights: WeightsBuffer) -> None:
        self.pipe, self.config, self.weights = pipe, config, weights
        with torch.device(config.device):
            model = Transformer(config.model).to(config.dtype).eval().requires_grad_(requires_grad=False)
        model.tokenizer = config.tokenizer
        self.engine = Engine(model, slots=config.slots, length=config.length)
        self.stream = TaskStream(config.tasks, config.seed, config.batch, config.steps, config.dropped)
        self.jobs: deque[Job] = deque()
        self.began: dict[int, int] = {}  # the version with which each group in play began
        self.beaten, self.idle, self.tokens = time.monotonic(), 0.0, 0

    def run(self) -> None:
        """Play, until the pipe closes."""
        self._say(Ready())
        played = play_orders(
            self._orders(),
            self.engine,
            ChatFormat(self.config.tokenizer),
            self.stream.mix.kinds,
            group=self.config.group,
            at_once=self.config.slots,
            drawing=Drawing(self.config.temperature),
            tools=find_tools(self.config.tools),
            between=self._between,
        )
        for order, episodes in played:
            plain = tuple(to_plain(each) for each in episodes)
            self._say(Finished(order.number, self.began.pop(order.number), plain))

    def _orders(self) -> Iterator[Order | None]:
        while True:
            if not self.jobs:
                yield None
                continue
            job = self.jobs.popleft()
            own = self.config
            seconds = own.episode_seconds
            limits = Limits(job.max_new_tokens, own.length, stops=own.stops, episode_seconds=seconds)
            self.began[job.number] = self.engine.version
            yield Order(job.number, self.stream[job.number], self.stream.sample_seed(job.number), limits)

    def _between(self) -> None:
        """Between two decoding steps: read what the learner has sent, and beat."""
        waited = time.monotonic()
        idle = not self.jobs and not self.began
        newest: NewWeights | None = None
        try:
            while self.pipe.poll(IDLE_SECONDS if idle else 0.0):
                message = self.pipe.recv()
                idle = False
                if isinstance(message, Stop):
                    raise Gone
                if isinstance(message, NewWeights):
                    newest = message
                else:
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
            self._say(Beat(now - self.beaten, self.idle, made - self.tokens))
            self.beaten, self.idle, self.tokens = now, 0.0, made

    def _take(self, new: NewWeights) -> None:
        self.engine.update(self.weights.read(new.slot), new.version)
        if weights_checksum(self.engine.model) != new.checksum:
            raise CheckFailed(f"the weights of version {new.version} did not arrive as they were sent", place="sampler")
        self._say(Taken(new.version))

    def _say(self, event: Event) -> None:
        try:
            self.pipe.send(event)
        except (BrokenPipeError, OSError) as error:
            raise Gone from error


def serve(pipe: Connection, config: SamplerConfig, weights: WeightsBuffer) -> None:
    """What the process runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the learner's, which closes the pipe
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=end_with_parent, daemon=True).start()
    torch.set_num_threads(config.threads)
    if config.device.startswith("cuda"):
        torch.cuda.set_device(config.device)  # kernels are launched on the current device
    with suppress(Gone):
        try:
            Sampler(pipe, config, weights).run()
        except IngotError as error:
            with suppress(BrokenPipeError, OSError):
                pipe.send(Failed(str(error)))
