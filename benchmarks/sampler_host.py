"""What an RL sampler costs its processor: the real sampler (post/samplers/worker.py) with a device that takes no time.

The engine, the episodes, the verifiers and the messages are those of a run; only the model is not there: its passes return at
once, and each answer has been written before. So this is Python alone, and a run on a GPU cannot sample faster than it.
Answers are the tasks' worked solutions, some with a wrong end, some cut off, so they have about the lengths that a model writes.
Steps overlap as on a GPU. New weights (tiny ones) come after each batch of groups.

    python benchmarks/sampler_host.py CHECKPOINT [--recipe recipes/smollm2-rl.yaml] [--stage rl] [--steps 6] [--slots 512]
        [--right 0.4] [--cut 0.02]

Only the tokenizer of the checkpoint is used. Printed: tokens a second by the clock and of processor time of this process
(children that judge answers have their own), milliseconds by part, and what a learner needs to read the messages.
"""

from __future__ import annotations

import argparse
import pickle
import random
import sys
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # to be run as a file

from ingot.checkpoints.checkpoint import open_model
from ingot.envs.episode_plain import from_plain
from ingot.envs.rollout.pausable import OrderPlayer
from ingot.envs.rollout.rollout import Player, request_seed
from ingot.envs.tasks._math_problems import MathProblems
from ingot.envs.tasks.reasoning_gym import ReasoningGym
from ingot.inference import engine as engine_module
from ingot.inference.controls import Controls
from ingot.inference.draw import Drawn
from ingot.inference.engine import Engine
from ingot.model.config import BlockConfig, ModelConfig
from ingot.model.feed_forward.dense import FeedForwardConfig
from ingot.model.mixers.attention import AttentionConfig
from ingot.post.rl.config import RlConfig
from ingot.post.samplers.messages import Command, Event, Finished, Job, NewWeights, Ready, Taken
from ingot.post.samplers.task_stream import TaskStream
from ingot.post.samplers.weights_buffer import WeightsBuffer
from ingot.post.samplers.worker import SWITCH_SECONDS, Gone, Sampler, SamplerConfig
from ingot.recipe.load import load_recipe
from ingot.tokens.chat import ChatFormat, Message
from ingot.tokens.tokenizer import Tokenizer

PARTS: dict[str, tuple[Any, str]] = {
    "a decoding step": (Engine, "step"),
    "· joining and prefill": (Engine, "_admit_and_read"),
    "· making rows anew": (Engine, "_form"),
    "· pages for rows": (Engine, "_reserve"),
    "· launch": (Engine, "_launch"),
    "· giving out tokens": (Engine, "_settle"),
    "  · of it, ends of requests": (Engine, "_end"),
    "beginning episodes": (Player, "_begin"),
    "going on with episodes, begun ones too": (Player, "_advance"),
    "· requests to the engine": (Engine, "submit"),
    "· reading a turn": (ChatFormat, "parse"),
    "· scores, reasoning-gym": (ReasoningGym, "score_at_once"),
    "· scores, mathematics": (MathProblems, "score_at_once"),
    "between two steps: messages, beats": (Sampler, "_between"),
    "· ages of groups in play": (OrderPlayer, "oldest"),
    "tasks": (TaskStream, "__getitem__"),
    "sending": (Sampler, "_say"),
}


class Clock:
    """Processor time of the sampler's thread by part, with all that a part calls; begun anew when the first batch has ended."""

    def __init__(self) -> None:
        self.seconds, self.calls = defaultdict[str, float](float), Counter[str]()
        for name, (owner, method) in PARTS.items():
            setattr(owner, method, self._timed(name, getattr(owner, method)))

    def _timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*given: Any, **options: Any) -> Any:
            began = time.thread_time()
            try:
                return function(*given, **options)
            finally:
                self.seconds[name] += time.thread_time() - began
                self.calls[name] += 1

        return timed

    def show(self, batches: int) -> None:
        """Milliseconds a batch."""
        for name in PARTS:
            seconds, calls = self.seconds[name], self.calls[name]
            each = seconds / max(1, calls) * 1e6
            print(f"{name:42} {seconds / batches * 1e3:7.1f} ms, {calls // batches:5} calls of {each:7.0f} us")


class Answers:
    """What each sample of each task says, by the seed of its request."""

    def __init__(self, stream: TaskStream, chat: ChatFormat, config: RlConfig, count: int, right: float, cut: float):
        chance = random.Random(0)
        self.row_of: dict[int, int] = {}
        rows: list[list[int]] = []
        for number in range(count):
            task, seed = stream[number], stream.sample_seed(number)
            kind = stream.mix.kinds[task.kind]
            solved = _written(chat, [*task.messages, *kind.solution(task)], task.thinking)
            wrong = _written(chat, [*task.messages, *kind.weaker(task, chance)], task.thinking)
            endless = (solved[:-2] * config.max_new_tokens)[: config.max_new_tokens]
            for sample in range(config.group):
                drawn = chance.random()
                tokens = endless if drawn < cut else solved if drawn < cut + right else wrong
                self.row_of[request_seed(seed, task.id, sample, 0)] = len(rows)
                rows.append(tokens[: config.max_new_tokens])
        self.table = np.zeros((len(rows), config.max_new_tokens + 2), dtype=np.int64)
        for place, tokens in enumerate(rows):
            self.table[place, : len(tokens)] = tokens
        self._controls: Controls | None = None
        self._rows = np.zeros(0, dtype=np.int64)

    def draw(self, logits_BV: Tensor, controls: Controls, steps_B: Tensor) -> Drawn:
        """The next token of each row."""
        if controls is not self._controls:
            self._controls, self._rows = controls, np.array([self.row_of[one.seed] for one in controls.samplings])
        steps = np.minimum(steps_B.numpy(), self.table.shape[1] - 1)
        ids = self.table[self._rows, steps]
        return Drawn(torch.from_numpy(ids), torch.from_numpy(ids % 97 / -64.0))


def _written(chat: ChatFormat, messages: Sequence[Message], thinking: bool) -> list[int]:
    """The tokens of the last turn, as a model writes them."""
    tokens, mask = chat.conversation(messages, thinking=thinking)
    return [token for token, own in zip(tokens, mask, strict=True) if own]


class Learner:
    """The other end of the pipe: asks for groups, sends weights after every batch, and ends when there are enough.

    Messages are pickled as a real pipe does. The clock begins when the first batch has ended.
    """

    def __init__(self, config: RlConfig, weights: WeightsBuffer, steps: int, clock: Clock) -> None:
        self.config, self.steps, self.clock = config, steps, clock
        self.batch = config.prompts_per_step
        assert config.asynchronous is not None
        self.messages: deque[Command] = deque()
        self.ended, self.asked, self.version = 0, 0, 0
        self.sums = [weights.write(slot, weights.read(slot).items()) for slot in range(2)]
        self.heard: list[bytes] = []  # groups that ended after the first batch
        self.began, self.processor = 0.0, 0.0
        self.capacity = config.asynchronous.staleness * self.batch

    def poll(self, timeout: float) -> bool:
        """Whether there is a message."""
        return bool(self.messages)

    def recv(self) -> Command:
        """The next message, which has come through a pipe."""
        message: Command = pickle.loads(bytes(ForkingPickler.dumps(self.messages.popleft())))
        return message

    def send(self, event: Event, /) -> None:
        """What the sampler says."""
        data = bytes(ForkingPickler.dumps(event))
        match event:
            case Ready():
                self._send_weights()
                self._ask()
            case Finished():
                self._end(data)
            case Taken():
                pass

    def _end(self, data: bytes) -> None:
        self.ended += 1
        if self.ended > self.batch:
            self.heard.append(data)
        if self.ended == self.batch:
            self.clock.seconds.clear()
            self.clock.calls.clear()
            self.began, self.processor = time.perf_counter(), time.process_time()
        if self.ended == (self.steps + 1) * self.batch:
            raise Gone
        if self.ended % self.batch == 0:
            self._send_weights()
        self._ask()

    def _ask(self) -> None:
        while self.asked - self.ended < self.capacity:
            self.messages.append(Job(self.asked, self.config.max_new_tokens, self.config.temperature))
            self.asked += 1

    def _send_weights(self) -> None:
        self.messages.append(NewWeights(self.version, self.version % 2, self.sums[self.version % 2]))
        self.version += 1


def tiny(tokenizer: Tokenizer, context: int) -> ModelConfig:
    """A model that is never run: one layer that is hardly there."""
    block = BlockConfig(
        mixer=AttentionConfig(heads=1, key_value_heads=1, head_width=2), feed_forward=FeedForwardConfig(width=2)
    )
    return ModelConfig(
        vocabulary_size=tokenizer.vocabulary_size, width=2, blocks={"layer": block}, layers="layer", context=context
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--recipe", type=Path, default=Path("recipes/smollm2-rl.yaml"))
    parser.add_argument("--stage", default="rl")
    parser.add_argument("--steps", type=int, default=6, help="batches of groups that are timed")
    parser.add_argument("--slots", type=int, default=512)
    parser.add_argument("--right", type=float, default=0.4, help="share of right answers")
    parser.add_argument("--cut", type=float, default=0.02, help="share of answers without an end")
    arguments = parser.parse_args()
    config = next(each for each in load_recipe(arguments.recipe).stages if each.name == arguments.stage).config
    assert isinstance(config, RlConfig)
    tokenizer = open_model(arguments.checkpoint).tokenizer()
    assert tokenizer is not None
    clock = Clock()
    sampler, learner = prepare(config, tokenizer, arguments, clock)
    with suppress(Gone):
        sampler.run()
    seconds, processor = time.perf_counter() - learner.began, time.process_time() - learner.processor
    parts = clock.seconds.copy(), clock.calls.copy()
    began = time.process_time()
    groups: list[Finished] = [pickle.loads(data) for data in learner.heard]
    episodes = [from_plain(each, sampler.stream[group.number]) for group in groups for each in group.episodes]
    reading = time.process_time() - began
    tokens, answers, steps = sum(each.sampled_count for each in episodes), len(episodes), arguments.steps
    size = sum(map(len, learner.heard)) / answers
    print(
        f"{tokens / processor:,.0f} tokens/s of processor time, {tokens / seconds:,.0f} by the clock\n"
        f"a batch of {answers // steps} answers, {tokens / answers:.1f} tokens each: {processor / steps * 1e3:.0f} ms of "
        f"processor time, {size:,.0f} bytes an answer; the learner reads it in {reading / steps * 1e3:.0f} ms",
        flush=True,
    )
    clock.seconds, clock.calls = parts
    clock.show(steps)


def prepare(config: RlConfig, tokenizer: Tokenizer, arguments: Any, clock: Clock) -> tuple[Sampler, Learner]:
    """A sampler whose model is not there, its answers, and a learner for it."""
    torch.set_num_threads(1)
    sys.setswitchinterval(SWITCH_SECONDS)
    made = SamplerConfig(
        model=tiny(tokenizer, config.sequence_length),
        tokenizer=tokenizer,
        dtype=torch.float32,
        devices=("cpu",),
        threads=1,
        tasks=config.tasks,
        tools=config.tools,
        seed=1,
        batch=config.prompts_per_step,
        steps=1,
        group=config.group,
        slots=arguments.slots,
        length=config.sequence_length,
        episode_seconds=config.episode_seconds,
    )
    weights = WeightsBuffer(made.model, made.dtype, torch.device("cpu"))
    stream = TaskStream(config.tasks, 1, config.prompts_per_step)
    asynchronous = config.asynchronous
    assert asynchronous is not None
    count = config.prompts_per_step * (arguments.steps + 2 + asynchronous.staleness)
    answers = Answers(stream, ChatFormat(tokenizer), config, count, arguments.right, arguments.cut)
    pipe = Learner(config, weights, arguments.steps, clock)
    sampler = Sampler(pipe, made, weights)
    engine = sampler.engine
    engine._overlaps = True  # as on a GPU
    nothing = torch.zeros(1, 1).expand(arguments.slots, tokenizer.vocabulary_size)
    vars(engine._decoder)["logits"] = lambda size, reach: nothing[:size]
    vars(engine.model)["hidden"] = lambda *given, **options: nothing
    vars(engine_module)["draw"] = answers.draw
    return sampler, pipe


if __name__ == "__main__":
    main()
