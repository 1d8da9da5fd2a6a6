"""Sample a batch by an engine in this process: sampling and training take turns, and a run repeats to the bit.

    choose    tasks of a round: a function of (seed, step, round), so of neither the number of processes nor what ends first
    play      an answer for each of them, shared by all processes (processes.py)
    retry     answers whose environment failed, `retries` times at the most
    grade     a reward model adds to what they earn (rewards/reward_model.py)

Dynamic sampling repeats these four until enough groups have a difference, or the rounds are over; then the others fill the batch.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from ingot.envs.environment import Environment
from ingot.envs.episode import Episode
from ingot.envs.mix import TaskMix
from ingot.envs.rollout.rollout import Drawing, rollout
from ingot.envs.task import Task
from ingot.envs.tools.find import find_tools
from ingot.inference.engine import Engine
from ingot.model.transformer import Transformer
from ingot.post.barrier import Between
from ingot.post.policy import chat_format
from ingot.post.processes import Processes
from ingot.post.rewards.reward_model import Judge
from ingot.post.rl.curriculum.task_choice import TaskChoice
from ingot.post.rl.pipeline import BatchSampler, SampleBatch, groups_of
from ingot.post.rl.sampling_config import SamplingConfig
from ingot.post.samplers.failures import failed_places, unwritten_as_failed
from ingot.post.samplers.task_stream import ATTEMPT, RETRY, step_seed
from ingot.train.device import choose_device, choose_sampling_precision

TRIES = 10  # draws of tasks in search of those that are wanted
HELD_OUT = 1_000  # the attempt of a step that answers held-out tasks; rounds of dynamic sampling are fewer
KINDS_SEQUENCE = 10_000  # indices at which a further round may enter the sequence of kinds (envs/mix.py)


class EngineSampler(BatchSampler):
    """The engine, and the tasks it is asked."""

    def __init__(
        self,
        model: Transformer,
        whole: Transformer | None,
        config: SamplingConfig,
        seed: int,
        processes: Processes,
        *,
        mix: TaskMix | None = None,
        choice: TaskChoice | None = None,
        differ: Callable[[Sequence[Episode]], bool] = lambda group: True,
        judge: Judge | None = None,
    ) -> None:
        """`whole` is what is sampled from: `model` itself, unless several processes divide that. Groups without a difference are
        those that do not `differ`."""
        self.model, self.whole, self.config, self.seed, self.processes = model, whole or model, config, seed, processes
        self.mix, self.choice = mix or TaskMix(config.tasks), choice or TaskChoice()
        self.differ, self.judge = differ, judge
        self.chat, self.tools = chat_format(model), find_tools(config.tools)
        self.dtype = choose_sampling_precision(config.sampling_precision, choose_device(config.device))
        self.drawn_at = time.monotonic()  # when a batch was drawn last
        self.sampled_tokens = 0  # of the batch
        self.retried_groups = 0

    @cached_property
    def engine(self) -> Engine:
        """Made when the first answer is asked for."""
        slots = self.config.engine_slots(self.processes.size)
        return Engine(self.whole, slots=slots, length=self.config.sequence_length, dtype=self.dtype)

    def renew(self, step: int, *, begins: bool = True) -> None:
        if begins:
            self.processes.renew(self.whole, self.model)
            self.engine.update(None, version=step)

    def draw(self, batch: SampleBatch) -> None:
        began, self.sampled_tokens, self.retried_groups = time.monotonic(), 0, 0
        wanted, refill = self.config.prompts_per_batch, self.config.refill
        useful, others, drawn = list[Sequence[Episode]](), list[Sequence[Episode]](), list[Episode]()
        for number in range(1 if refill is None else refill.rounds):
            missing = wanted - len(useful)
            count = wanted if refill is None or refill.ask == "batch" or number == 0 else missing
            tasks = self.choose(batch.step, number, count)
            episodes = self.sample([task for task in tasks for _ in range(self.config.group)], batch, number)
            drawn += episodes
            for group in groups_of(episodes, self.config.group):
                (useful if refill is None or self.differ(group) else others).append(group)
            if len(useful) >= wanted:
                break
        batch.drawn = drawn
        batch.episodes = [each for group in [*useful, *others][:wanted] for each in group]
        batch.metrics |= self._times(began)

    def choose(self, step: int, number: int, count: int) -> list[Task]:
        """`count` tasks for a round of a step's sampling; those passed over only if there are not enough others."""
        seed = step_seed(self.seed, step)
        first = step // self.config.updates_per_batch * self.config.prompts_per_batch
        found, passed = list[Task](), list[Task]()
        for attempt in range(1 if self.choice.takes_all else TRIES):
            if number or attempt:  # anywhere in the sequence of kinds: a missing task is not always of the same kind
                further = random.Random(f"round/{step_seed(self.seed, step)}/{number}/{attempt}")
                seed, first = further.randrange(1 << 48), further.randrange(KINDS_SEQUENCE)
            for index, task in enumerate(self.mix.generate(seed, count, "train", first)):
                new = not attempt or all(task.id != each.id for each in found)
                wanted = new and self.choice.wants(task, f"{step}/{number}/{attempt}/{index}", step)
                (found if wanted else passed).append(task)
            if len(found) >= count:
                break
        return [*found, *passed][:count]

    def sample(
        self,
        tasks: Sequence[Task],
        batch: SampleBatch,
        attempt: int = 0,
        kinds: Mapping[str, Environment] | None = None,
    ) -> list[Episode]:
        """A scored answer to every task; another `attempt` draws others.

        `kinds` are the tasks' environments, if they are not those of the stage.
        """
        kinds = self.mix.kinds if kinds is None else kinds
        return self.grade(self.retry(self.play(tasks, batch, attempt, kinds), tasks, batch, attempt, kinds))

    def play(
        self, tasks: Sequence[Task], batch: SampleBatch, attempt: int, kinds: Mapping[str, Environment]
    ) -> list[Episode]:
        """Let the policy answer each of the tasks; each process plays a part."""
        seed = step_seed(self.seed, batch.step) + attempt * ATTEMPT

        def play_run(run: slice, between: Between) -> list[Episode]:
            made = rollout(
                tasks,
                self.engine,
                self.chat,
                kinds,
                drawing=Drawing(batch.temperature, seed=seed),
                limits=self.config.limits(batch.limit),
                tools=self.tools,
                only=run,
                between=between,
            )
            return unwritten_as_failed(made)

        episodes = self.processes.share(len(tasks), play_run)
        self.sampled_tokens += sum(each.sampled_count for each in episodes)
        return episodes

    def retry(
        self,
        episodes: list[Episode],
        tasks: Sequence[Task],
        batch: SampleBatch,
        attempt: int,
        kinds: Mapping[str, Environment],
    ) -> list[Episode]:
        """Sample those again whose environment failed."""
        for retry in range(1, self.config.retries + 1):
            failed = failed_places(episodes)
            if not failed:
                break
            self.retried_groups += len({index // self.config.group for index in failed})
            again = self.play([tasks[index] for index in failed], batch, attempt + retry * RETRY, kinds)
            for index, each in zip(failed, again, strict=True):
                episodes[index] = each
        return episodes

    def grade(self, episodes: list[Episode]) -> list[Episode]:
        """Let reward functions and a reward model add to what the answers earn, if there are any."""
        judge = self.judge
        if judge is None:
            return episodes
        return self.processes.share(len(episodes), lambda run, between: judge(episodes[run], between))

    def answer(self, tasks: Sequence[Task], kinds: Mapping[str, Environment], batch: SampleBatch) -> list[Episode]:
        self.engine.update(None, version=batch.step)
        return self.sample(tasks, batch, HELD_OUT, kinds)

    def _times(self, began: float) -> dict[str, float]:
        """The idle shares of learner and sampler: one always waits for the other."""
        last, self.drawn_at = self.drawn_at, time.monotonic()
        seconds = self.drawn_at - began
        share = seconds / (self.drawn_at - last)
        return {
            "learner_idle_share": share,
            "sampler_idle_share": 1 - share,
            "sampler_tokens_per_second": self.sampled_tokens / seconds,
            "retried_groups": float(self.retried_groups),
        }
