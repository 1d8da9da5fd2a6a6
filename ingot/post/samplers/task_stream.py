"""The stream of an RL stage's tasks: task n is a pure function of (seed, n), so learner and samplers agree on it by number.

The stream is what the synchronous stage asks, batch after batch: n = b · size + i is task i of batch b. Numbers below 0 are of
tasks that are asked beside it (listed.py).
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

from ingot.envs.config import TaskMixConfig
from ingot.envs.environment import Environment
from ingot.envs.mix import TaskMix
from ingot.envs.task import Task
from ingot.post.samplers.listed import ListedTasks

BATCHES = 16  # that are remembered
ATTEMPT = 1_000_000_007  # between the seeds of two attempts of a step, or of a group
RETRY = 10_000  # between the attempts of a step and those in which failed answers of it are sampled again


def step_seed(seed: int, step: int) -> int:
    """The seed of a step's tasks and samples."""
    return seed * 1_000_003 + step


class TaskStream:
    """Batches of `size` tasks; `steps` optimizer steps lie between two of them. `dropped` do not come (envs/mix.py)."""

    def __init__(
        self,
        tasks: TaskMixConfig,
        seed: int,
        size: int,
        steps: int = 1,
        dropped: Collection[str] = (),
        listed: ListedTasks | None = None,
    ) -> None:
        self.mix, self.seed, self.size, self.steps = TaskMix(tasks, dropped), seed, size, steps
        self.listed, self.listed_kinds = ([], {}) if listed is None else listed.make()
        self._batch = lru_cache(BATCHES)(self._generate)

    def __getitem__(self, number: int) -> Task:
        if number < 0:
            return self.listed[-1 - number]
        batch, place = divmod(number, self.size)
        return self._batch(batch)[place]

    def _generate(self, batch: int) -> list[Task]:
        return self.mix.generate(step_seed(self.seed, batch * self.steps), self.size, "train", batch * self.size)

    def environment(self, number: int) -> Environment | None:
        """That of a task, if the mixture names it: a listed task may have another one under the same name."""
        return (self.listed_kinds if number < 0 else self.mix.kinds).get(self[number].kind)

    def sample_seed(self, number: int) -> int:
        """The seed of a task's samples; the same question may come twice in a batch."""
        return step_seed(self.seed, number)
