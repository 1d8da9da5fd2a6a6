"""What an RL sampler costs its processor: the real sampler (post/samplers/worker.py) with a device that takes no time.

The engine, the episodes, the verifiers and the messages are those of a run; only the model is not there: its passes return at
once, and each answer has been written before. So this is Python alone, and a run on a GPU cannot sample faster than it.
Answers are the tasks' worked solutions, some with a wrong end, some cut off, so they have about the lengths that a model writes.
Steps overlap as on a GPU. New weights (tiny ones) come after each batch of groups.

    python benchmarks/sampler_host.py CHECKPOINT [--recipe recipes/smollm2-rl.yaml] [--stage rl] [--steps 6] [--slots 512]
        [--right 0.4] [--cut 0.02] [--profile]

Only the tokenizer of the checkpoint is used. Printed: tokens a second by the clock and of processor time of this process
(children that judge answers have their own), milliseconds by part, and what a learner needs to read the messages.
"""

from __future__ import annotations

import argparse
import cProfile
import pickle
import pstats
import random
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # to be run as a file

from ingot.checkpoints.checkpoint import open_model
from ingot.envs.rollout import request_seed
from ingot.inference import engine as engine_module
from ingot.inference.controls import Controls
from ingot.inference.draw import Drawn
from ingot.model.config import BlockConfig, ModelConfig
from ingot.model.feed_forward.dense import FeedForwardConfig
from ingot.model.mixers.attention import AttentionConfig
from ingot.post.samplers.messages import Command, Event, Finished, Job, NewWeights, Ready, Taken, from_plain
from ingot.post.samplers.task_stream import TaskStream
from ingot.post.samplers.weights_buffer import WeightsBuffer
from ingot.post.samplers.worker import SWITCH_SECONDS, Gone, Sampler, SamplerConfig
from ingot.post.sampling_config import RlConfig
from ingot.recipe.load import load_recipe
from ingot.tokens.chat import ChatFormat, Message
from ingot.tokens.tokenizer import Tokenizer

PARTS = (
    "engine.py:step",
    "engine.py:_admit_and_read",
    "engine.py:_form",
    "engine.py:_launch",
    "engine.py:_settle",
    "engine.py:_end",
    "engine.py:submit",
    "rollout.py:_begin",
    "rollout.py:_advance",
    "play.py:_record",
    "chat.py:parse",
    "reasoning_gym.py:score_at_once",
    "math_problems.py:score_at_once",
    "beside.py:ended",
    "task_stream.py:__getitem__",
    "messages.py:to_plain",
    "worker.py:_say",
    "worker.py:_take",
)


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
        self.mean_length = sum(map(len, rows)) / len(rows)
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

    def __init__(
        self, config: RlConfig, stream: TaskStream, weights: WeightsBuffer, state: dict[str, Tensor], steps: int
    ):
        self.config, self.stream, self.steps = config, stream, steps
        self.batch = config.prompts_per_step
        assert config.asynchronous is not None
        self.messages: deque[Command] = deque()
        self.ended, self.asked, self.version = 0, 0, 0
        self.sums = [weights.write(slot, state) for slot in range(2)]
        self.bytes = self.tokens = self.answers = 0
        self.reading, self.began, self.processor = 0.0, 0.0, 0.0
        self.capacity = config.asynchronous.staleness * self.batch

    def poll(self, timeout: float) -> bool:
        """Whether there is a message."""
        return bool(self.messages)

    def recv(self) -> Command:
        """The next message, which has come through a pipe."""
        message: Command = pickle.loads(bytes(ForkingPickler.dumps(self.messages.popleft())))  # type: ignore[attr-defined]
        return message

    def send(self, event: Event, /) -> None:
        """What the sampler says."""
        data = bytes(ForkingPickler.dumps(event))  # type: ignore[attr-defined]
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
        paused, processor = time.perf_counter(), time.process_time()
        event: Finished = pickle.loads(data)
        episodes = [from_plain(each, self.stream[event.number]) for each in event.episodes]
        took = time.perf_counter() - paused
        if self.ended > self.batch:
            self.bytes += len(data)
            self.tokens += sum(each.sampled_count for each in episodes)
            self.answers += len(episodes)
            self.reading += took
            self.began += took  # no part of the sampler's time
            self.processor += time.process_time() - processor
        if self.ended == self.batch:
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
    parser.add_argument("--profile", action="store_true", help="time by part; all of it takes longer")
    arguments = parser.parse_args()
    config = next(each for each in load_recipe(arguments.recipe).stages if each.name == arguments.stage).config
    assert isinstance(config, RlConfig)
    tokenizer = open_model(arguments.checkpoint).tokenizer()
    assert tokenizer is not None
    sampler, learner, answers = prepare(config, tokenizer, arguments)
    profile = cProfile.Profile() if arguments.profile else None
    with suppress(Gone):
        if profile is not None:
            profile.enable()
        sampler.run()
    seconds, processor = time.perf_counter() - learner.began, time.process_time() - learner.processor
    print(
        f"{learner.tokens / seconds:,.0f} tokens/s by the clock, {learner.tokens / processor:,.0f} of processor time; "
        f"{seconds / arguments.steps * 1e3:.0f} ms a batch of {learner.answers // arguments.steps} answers "
        f"(mean {answers.mean_length:.1f} tokens), {learner.bytes / learner.answers:,.0f} bytes an answer, "
        f"the learner reads a batch in {learner.reading / arguments.steps * 1e3:.0f} ms",
        flush=True,
    )
    if profile is not None:
        profile.disable()
        show(profile, arguments.steps + 1)


def prepare(config: RlConfig, tokenizer: Tokenizer, arguments: Any) -> tuple[Sampler, Learner, Answers]:
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
    pipe = Learner(config, stream, weights, weights.read(0), arguments.steps)
    sampler = Sampler(pipe, made, weights)
    engine = sampler.engine
    engine._overlaps = True  # as on a GPU
    nothing = torch.zeros(1, 1).expand(arguments.slots, tokenizer.vocabulary_size)
    vars(engine._decoder)["logits"] = lambda size, reach: nothing[:size]
    vars(engine.model)["hidden"] = lambda *given, **options: nothing
    vars(engine_module)["draw"] = answers.draw
    return sampler, pipe, answers


def show(profile: cProfile.Profile, batches: int) -> None:
    """Milliseconds a batch by part, with all that a part calls; then the functions that take most by themselves."""
    table = pstats.Stats(profile)
    found = vars(table)["stats"]
    for part in PARTS:
        file, name = part.split(":")
        for (path, _, function), (_, calls, own, whole, _) in found.items():
            if path.endswith(f"/{file}") and function == name and "ingot" in path:
                print(
                    f"{part:36} {whole / batches * 1e3:8.1f} ms, itself {own / batches * 1e3:7.1f}, {calls // batches} calls"
                )
    table.sort_stats("tottime").print_stats(45)


if __name__ == "__main__":
    main()
