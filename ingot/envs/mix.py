"""A mixture of task kinds.

Kinds come in an endless sequence in which each keeps its share (tokens/mixture.py), and a mixture is a run of it: the counts
are as near to the weights as whole tasks can be, and only the order is random. Mixtures that follow each other, as the steps of
RL do, hold the shares together: rounded each by itself, a kind of which half a task is due in every step would never come.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

from ingot.envs.config import TaskMixConfig
from ingot.envs.environment import Environment
from ingot.envs.episode import Score
from ingot.envs.task import PATIENCE, Split, Task, choose_rows
from ingot.tokens.chat import Message
from ingot.tokens.mixture import Apportionment
from ingot.workspace.errors import DataError, RecipeError

FIRST = tuple(TaskMixConfig().weights)
"""Kinds are shuffled from this order, then by name: the order in a recipe does not change the data."""


class TaskMix:
    """Several task kinds with weights. `dropped` are names of train tasks that do not come: ids, levels, or whole kinds."""

    def __init__(self, config: TaskMixConfig | None = None, dropped: Collection[str] = ()) -> None:
        self.config, self.dropped = config or TaskMixConfig(), frozenset(dropped)
        names = sorted(self.config.weights, key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name))
        made: list[Environment] = [self.config.kind(name) for name in names]
        self.kinds = {kind.kind: kind for kind in made}
        if len(self.kinds) < len(made):
            problem = f"two task kinds have the same short name: {', '.join(names)}"
            raise RecipeError(problem, fix="give one class another name")
        weights = {self.config.kind(name).kind: weight for name, weight in self.config.weights.items()}
        self.shares = Apportionment(
            {kind: weight for kind, weight in weights.items() if kind not in self.dropped} if self.dropped else weights
        )

    def generate(self, seed: int, count: int, split: Split, first: int = 0) -> list[Task]:
        """`count` tasks; `first` tells how many were in the mixtures before this one."""
        tasks: list[Task] = []
        for kind, share in self.counts(count, first).items():
            tasks += self._generate(self.kinds[kind], seed, share, split)
        random.Random(f"mix/{split}/{seed}").shuffle(tasks)
        return tasks

    def _generate(self, kind: Environment, seed: int, count: int, split: Split) -> list[Task]:
        """Tasks of a kind, without those that are dropped."""
        if not self.dropped or split == "test" or count == 0:
            return kind.generate(seed, count, split)
        rows = kind.rows(split)
        if rows is not None:
            return choose_rows(kind.kind, [task for task in rows if self.keeps(task)], seed, count, split)
        tasks: list[Task] = []
        for attempt in range(PATIENCE):
            again = random.Random(f"again/{seed}/{attempt}").randrange(1 << 48) if attempt else seed
            tasks += [task for task in kind.generate(again, count, split) if self.keeps(task)]
            if len(tasks) >= count:
                return tasks[:count]
        raise DataError(
            f"after {PATIENCE} draws there are {len(tasks)} of {count} tasks that are neither too easy nor too hard",
            place=f"task kind {kind.kind}",
            fix="widen the range of pass rates, or the difficulty of this kind",
        )

    def keeps(self, task: Task) -> bool:
        """Whether a train task may come."""
        return self.dropped.isdisjoint((task.id, task.level, task.kind))

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
