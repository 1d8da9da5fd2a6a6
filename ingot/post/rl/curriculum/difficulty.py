"""How hard tasks are for the policy, and which of them are asked: pass rates over the run, a filter by them, a curriculum.

    key of a task    its id, where tasks are rows of files and come again; else its level: its kind, or the level that its
                     environment says (`self.ask(…, data={"level": 3})`), since a generated task hardly ever comes twice
    after a group    solved ← memory · solved + right answers,    seen ← memory · seen + answers
    pass rate        solved / seen;  where tasks were tried before the run, that is where it begins
    set aside        a key whose rate is outside [low, high] after a group is not asked for so many optimizer steps
    curriculum       a task is asked with a chance by its key's rate (curriculum.py)

Which tasks are passed over follows from (seed, place in the stream of tasks, pass rates); the rates are part of the checkpoint.
If too many in a row are passed over they are asked all the same: a run never stands still because everything is too easy.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from ingot.envs.episode import Episode
from ingot.envs.task import Task
from ingot.post.rl.curriculum.curriculum import CURRICULA, Curriculum
from ingot.workspace.config import Config
from ingot.workspace.errors import CheckFailed

HARD, EASY = 0.25, 0.75  # pass rates between which tasks count as middling in the metrics
MOST_LEVELS = 20  # that have metrics of their own


class TriedConfig(Config):
    """Tasks are tried before the run, by the checkpoint that it begins with; those outside the range never come."""

    samples: int = Field(8, gt=0, description="answers to each task")
    low: float = Field(0.0, ge=0, le=1, description="lowest pass rate that is kept")
    high: float = Field(0.625, ge=0, le=1, description="highest pass rate that is kept (OLMo 3: 0.625 of 8 answers)")
    drawn: int = Field(
        64, gt=0, description="tasks that are tried of a kind which makes them up; its levels are kept or dropped"
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        return _ordered(self)


class SetAsideConfig(Config):
    """Tasks that have become too easy, or are still too hard, rest for a while."""

    low: float = Field(0.0, ge=0, le=1, description="below this pass rate a task is too hard; 0: none is")
    high: float = Field(0.875, ge=0, le=1, description="above this pass rate a task is too easy")
    steps: int = Field(100, gt=0, description="optimizer steps for which such a task is not asked")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        return _ordered(self)


class DifficultyConfig(Config):
    """Which tasks are asked, by how often the policy solves them."""

    tried: TriedConfig | None = Field(None, description="a filter before the run; null: none")
    set_aside: SetAsideConfig | None = Field(None, description="a filter during the run; null: none")
    curriculum: Annotated[Curriculum, CURRICULA] | None = Field(
        None, description="how often a task is asked, by its recent pass rate; null: as tasks.weights say"
    )
    memory: float = Field(
        0.5,
        ge=0,
        lt=1,
        description="what earlier groups of a task, or of a level, count beside a new one in its pass rate",
    )


def _ordered(config: Any) -> Any:
    if config.low > config.high:
        raise ValueError(f"low ({config.low}) is above high ({config.high})")
    return config


@dataclass
class DifficultyRecord:
    """What is known of a key. `rests` until this step."""

    solved: float = 0.0
    seen: float = 0.0
    rests: int = 0

    @property
    def rate(self) -> float | None:
        """The recent pass rate; None if it was never asked."""
        return self.solved / self.seen if self.seen else None


class Difficulty:
    """The pass rates of a run. `drawn` are the kinds that make their tasks up; `tried` is (solved, seen) by key."""

    def __init__(
        self,
        config: DifficultyConfig,
        drawn: Collection[str],
        seed: int,
        tried: Mapping[str, tuple[float, float]] | None = None,
    ) -> None:
        self.config, self.drawn, self.seed, self.tried = config, frozenset(drawn), seed, dict(tried or {})
        self.records = {key: DifficultyRecord(*counts) for key, counts in self.tried.items()}

    def key(self, task: Task) -> str:
        """Under what a task's pass rate is kept."""
        return task_key(task, self.drawn)

    def rate(self, task: Task) -> float | None:
        """Its recent pass rate, if it is known."""
        record = self.records.get(self.key(task))
        return None if record is None else record.rate

    def wants(self, task: Task, place: str, step: int) -> bool:
        """Whether the task that stands at this place of the stream is asked at a step of the optimizer."""
        record = self.records.get(self.key(task))
        if record is None or record.rate is None:
            return True
        if step < record.rests:
            return False
        if self.config.curriculum is None:
            return True
        weight = self.config.curriculum.weight(record.rate)
        if not 0 <= weight <= 1:
            raise CheckFailed(
                f"the weight of a task with pass rate {record.rate:.3f} is {weight}",
                place=f"curriculum {self.config.curriculum.curriculum}",
                fix="let `weight` return a number from 0 to 1",
            )
        return random.Random(f"curriculum/{self.seed}/{place}").random() < weight

    def note(self, step: int, groups: Sequence[Sequence[Episode]]) -> dict[str, float]:
        """Groups were drawn at a step; the metrics of what was asked. Episodes whose environment failed are no answers."""
        metrics = self._metrics([group[0].task for group in groups])
        for group in groups:
            known = [each for each in group if not each.failed]
            if not known:
                continue
            record = self.records.setdefault(self.key(group[0].task), DifficultyRecord())
            record.solved = self.config.memory * record.solved + sum(each.score.correct for each in known)
            record.seen = self.config.memory * record.seen + len(known)
            rate, bounds = record.solved / record.seen, self.config.set_aside
            if bounds is not None and not bounds.low <= rate <= bounds.high:
                record.rests = step + bounds.steps
        metrics["set_aside"] = float(sum(record.rests > step for record in self.records.values()))
        return metrics | self._levels([group[0].task for group in groups])

    def _metrics(self, tasks: Sequence[Task]) -> dict[str, float]:
        """Shares of the tasks that were asked, by what was known of them before."""
        counts = Counter(_band(self.rate(task)) for task in tasks)
        return {f"difficulty/{band}": counts[band] / len(tasks) for band in ("new", "hard", "middle", "easy")}

    def _levels(self, tasks: Sequence[Task]) -> dict[str, float]:
        """The share and the pass rate of every level that is known as such."""
        levels = sorted(key for key in self.records if key.partition("/")[0] in self.drawn)
        counts = Counter(self.key(task) for task in tasks)
        found: dict[str, float] = {}
        for level in levels[:MOST_LEVELS]:
            found[f"share/{level}"] = counts[level] / len(tasks)
            found[f"pass_rate/{level}"] = self.records[level].rate or 0.0
        return found

    def state(self) -> dict[str, Any]:
        """As plain JSON."""
        return {key: [each.solved, each.seen, each.rests] for key, each in self.records.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`; an empty one is the beginning."""
        self.records = {key: DifficultyRecord(*each) for key, each in (state or self.tried).items()}


def task_key(task: Task, drawn: Collection[str]) -> str:
    """Its level, if its kind makes tasks up; else its id."""
    return task.level if task.kind in drawn else task.id


def _band(rate: float | None) -> str:
    if rate is None:
        return "new"
    return "hard" if rate < HARD else "easy" if rate > EASY else "middle"
