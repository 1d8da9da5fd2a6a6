"""A mixture of task kinds.

Kinds come in an endless sequence in which each keeps its share (tokens/mixture.py), and a mixture is a run of it: the counts
are as near to the weights as whole tasks can be, and only the order is random. Mixtures that follow each other, as the steps of
RL do, hold the shares together: rounded each by itself, a kind of which half a task is due in every step would never come.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from ingot.envs.config import TaskMixConfig
from ingot.envs.environment import Environment
from ingot.envs.episode import Score
from ingot.envs.task import Split, Task
from ingot.tokens.chat import Message
from ingot.tokens.mixture import Apportionment
from ingot.workspace.errors import RecipeError

FIRST = tuple(TaskMixConfig().weights)
"""Kinds are shuffled from this order, then by name: the order in a recipe does not change the data."""


class TaskMix:
    """Several task kinds with weights."""

    def __init__(self, config: TaskMixConfig | None = None) -> None:
        self.config = config or TaskMixConfig()
        names = sorted(self.config.weights, key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name))
        made: list[Environment] = [self.config.kind(name) for name in names]
        self.kinds = {kind.kind: kind for kind in made}
        if len(self.kinds) < len(made):
            problem = f"two task kinds have the same short name: {', '.join(names)}"
            raise RecipeError(problem, fix="give one class another name")
        weights = self.config.weights.items()
        self.shares = Apportionment({self.config.kind(name).kind: weight for name, weight in weights})

    def generate(self, seed: int, count: int, split: Split, first: int = 0) -> list[Task]:
        """`count` tasks; `first` tells how many were in the mixtures before this one."""
        tasks: list[Task] = []
        for kind, share in self.counts(count, first).items():
            tasks += self.kinds[kind].generate(seed, share, split)
        random.Random(f"mix/{split}/{seed}").shuffle(tasks)
        return tasks

    def counts(self, count: int, first: int = 0) -> dict[str, int]:
        """How many tasks of each kind a mixture of `count` holds, after mixtures of `first` tasks."""
        before, after = self.shares.counts(first), self.shares.counts(first + count)
        return {kind: after.get(kind, 0) - before.get(kind, 0) for kind in self.kinds}

    def solution(self, task: Task) -> list[Message]:
        """A correct conversation, by the task's kind."""
        return self.kinds[task.kind].solution(task)

    def score(self, task: Task, messages: Sequence[Message]) -> Score:
        """The score, by the task's kind."""
        return self.kinds[task.kind].score(task, messages)
