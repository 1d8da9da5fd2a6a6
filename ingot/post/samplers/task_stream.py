"""The stream of an RL stage's tasks: task n is a pure function of (seed, n), so learner and samplers agree on it by number.

The stream is what the synchronous stage asks, batch after batch: n = b · size + i is task i of batch b.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache

from ingot.envs.config import TaskMixConfig
from ingot.envs.mix import TaskMix
from ingot.envs.task import Task

BATCHES = 16  # that are remembered
ATTEMPT = 1_000_000_007  # between the seeds of two attempts of a step, or of a group


def step_seed(seed: int, step: int) -> int:
    """The seed of a step's tasks and samples."""
    return seed * 1_000_003 + step


class TaskStream:
    """Batches of `size` tasks; `steps` optimizer steps lie between two of them. `dropped` do not come (envs/mix.py)."""

    def __init__(
        self, tasks: TaskMixConfig, seed: int, size: int, steps: int = 1, dropped: Collection[str] = ()
    ) -> None:
        self.mix, self.seed, self.size, self.steps = TaskMix(tasks, dropped), seed, size, steps
        self._batch = lru_cache(BATCHES)(self._generate)

    def __getitem__(self, number: int) -> Task:
        batch, place = divmod(number, self.size)
        return self._batch(batch)[place]

    def _generate(self, batch: int) -> list[Task]:
        return self.mix.generate(step_seed(self.seed, batch * self.steps), self.size, "train", batch * self.size)

    def sample_seed(self, number: int) -> int:
        """The seed of a task's samples; the same question may come twice in a batch."""
        return step_seed(self.seed, number)
