"""A mixture of task kinds, itself a task set.

Kinds come in an endless sequence in which each keeps its share (tokens/mixture.py), and a mixture is a run of it: the counts
are as near to the weights as whole tasks can be, and only the order is random. Mixtures that follow each other, as the steps of
RL do, hold the shares together: rounded each by itself, a kind of which half a task is due in every step would never come.
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
from ingot.tokens.mixture import Apportionment


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
        self.shares = Apportionment({str(kind): weight for kind, weight in self.config.weights.items()})

    def generate(self, seed: int, count: int, split: Split, first: int = 0) -> list[Task]:
        """`count` tasks; `first` tells how many were in the mixtures before this one."""
        tasks: list[Task] = []
        for kind, share in self.counts(count, first).items():
            tasks += self.sets[kind].generate(seed, share, split)
        random.Random(f"mix/{split}/{seed}").shuffle(tasks)
        return tasks

    def counts(self, count: int, first: int = 0) -> dict[Kind, int]:
        """How many tasks of each kind a mixture of `count` holds, after mixtures of `first` tasks."""
        before, after = self.shares.counts(first), self.shares.counts(first + count)
        return {kind: after.get(kind, 0) - before.get(kind, 0) for kind in self.sets}

    def solution(self, task: Task) -> list[Message]:
        return self._set(task).solution(task)

    def weaker(self, task: Task, rng: random.Random) -> list[Message]:
        return self._set(task).weaker(task, rng)

    def score(self, task: Task, messages: Sequence[Message]) -> Score:
        return self._set(task).score(task, messages)

    def _set(self, task: Task) -> TaskSet:
        return next(tasks for kind, tasks in self.sets.items() if kind == task.kind)
