"""A mixture of task kinds, itself a task set.

The count of each kind is exact (largest remainder of its share) and only the order is random, so that two mixtures of
the same size hold the same number of each kind.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from ingot.envs.config import Kind, TaskMixConfig, TasksConfig
from ingot.envs.task import Score, Split, Task, TaskSet
from ingot.envs.tasks.arithmetic import Arithmetic
from ingot.envs.tasks.calculator import Calculator
from ingot.envs.tasks.no_think import NoThink
from ingot.envs.tasks.strings import Strings
from ingot.tokens.chat import Message


def task_sets(config: TasksConfig) -> dict[Kind, TaskSet]:
    """Every task kind at the difficulty of `config`."""
    return {
        "arithmetic": Arithmetic(config.arithmetic),
        "strings": Strings(config.strings),
        "calculator": Calculator(config.calculator),
        "no_think": NoThink(config.no_think),
    }


class TaskMix:
    """Several task kinds with weights."""

    kind = "mix"

    def __init__(self, config: TaskMixConfig | None = None) -> None:
        self.config = config or TaskMixConfig()
        self.sets = task_sets(self.config)

    def generate(self, seed: int, count: int, split: Split) -> list[Task]:
        tasks: list[Task] = []
        for kind, share in self.counts(count).items():
            tasks += self.sets[kind].generate(seed, share, split)
        random.Random(f"mix/{split}/{seed}").shuffle(tasks)
        return tasks

    def counts(self, count: int) -> dict[Kind, int]:
        """How many tasks of each kind a mixture of `count` holds."""
        weights = {kind: self.config.weights.get(kind, 0.0) for kind in self.sets}
        total = sum(weights.values())
        exact = {kind: count * weight / total for kind, weight in weights.items()}
        shares = {kind: int(value) for kind, value in exact.items()}
        by_remainder = sorted(exact, key=lambda kind: shares[kind] - exact[kind])
        for kind in by_remainder[: count - sum(shares.values())]:
            shares[kind] += 1
        return shares

    def solution(self, task: Task) -> list[Message]:
        return self._set(task).solution(task)

    def weaker(self, task: Task, rng: random.Random) -> list[Message]:
        return self._set(task).weaker(task, rng)

    def score(self, task: Task, messages: Sequence[Message]) -> Score:
        return self._set(task).score(task, messages)

    def _set(self, task: Task) -> TaskSet:
        return next(tasks for kind, tasks in self.sets.items() if kind == task.kind)
