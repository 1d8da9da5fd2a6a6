"""Tasks that the samplers answer beside the stream, by their place in a list: held-out ones, those that are tried before a run.

Learner and samplers make the same list of the same options, so a task travels as a number below 0: −1 − its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ingot.envs.config import TaskMixConfig
from ingot.envs.environment import Environment
from ingot.envs.mix import TaskMix
from ingot.envs.task import Split, Task


@dataclass(frozen=True)
class ListedTasks:
    """`count` tasks of a mixture; `by_kind`: all rows of every kind that has files, and `count` of every other kind."""

    tasks: TaskMixConfig
    seed: int
    count: int
    split: Split
    by_kind: bool = False

    def make(self) -> tuple[list[Task], Mapping[str, Environment]]:
        """The tasks, and their environments by name."""
        mix = TaskMix(self.tasks)
        if not self.by_kind:
            return mix.generate(self.seed, self.count, self.split), mix.kinds
        found = list[Task]()
        for kind in mix.kinds.values():
            rows = kind.rows(self.split)
            found += kind.generate(self.seed, self.count, self.split) if rows is None else rows
        return found, mix.kinds
