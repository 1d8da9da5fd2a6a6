"""Puzzles of the environments and of reasoning-gym: logic grids, sudoku, countdown, knights and knaves, paths, and any family.

    {suite: puzzles, kinds: {zebra: 50, sudoku: 20}, families: {gcd: 20, word_sorting: 20}}

Held-out tasks are generated from the seed, so all models meet the same. Metrics are the accuracy of each kind, and of all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Self

from pydantic import Field, model_validator

from ingot.envs.config import TaskName, TasksConfig
from ingot.envs.environment import Environment
from ingot.envs.episode import Episode
from ingot.envs.rollout.episode_run import Limits
from ingot.envs.tasks.reasoning_gym import ReasoningGym
from ingot.evals.bases.suite import Measured, Measuring, Subject, Suite
from ingot.evals.engine.prompt import Form
from ingot.evals.engine.request import Play
from ingot.evals.scores.scores import KEPT_SAMPLES, Metric, Sample, metric_of_units
from ingot.evals.suites.tasks import sample_of
from ingot.workspace.errors import CheckFailed

KINDS = {"zebra": 24, "sudoku": 24, "countdown": 24, "knights_knaves": 24, "graph_paths": 24}


class Puzzles(Suite):
    """Puzzles with one right answer: zebra, sudoku, countdown, knights and knaves, paths, reasoning-gym."""

    forms: ClassVar[tuple[Form, ...]] = ("chat",)

    kinds: dict[TaskName, int] = Field(KINDS, description="task kinds, and how many puzzles of each")
    families: dict[str, int] = Field({}, description="families of reasoning-gym, and how many puzzles of each")
    difficulty: TasksConfig = Field(TasksConfig(), description="how hard each task kind is")
    max_new_tokens: int = Field(1024, ge=1, description="tokens of an answer at most")

    @model_validator(mode="after")
    def _options_are_read(self) -> Self:
        self.difficulty.check_asked(self.kinds)
        return self

    def outside(self) -> dict[str, str]:
        """The files of its tasks."""
        return self.difficulty.outside()

    def measure(self, subject: Subject) -> Measuring:
        limits = Limits(self.max_new_tokens, subject.max_tokens, max_turns=1)
        plays: list[Play] = []
        names: list[str] = []
        for name, (environment, count) in self.environments().items():
            asked = count if subject.limit is None else min(count, subject.limit)
            tasks = environment.generate(subject.task_seed, asked, "test")
            plays += [Play(task, environment, limits) for task in tasks]
            names += [name] * len(tasks)
        episodes: Sequence[Episode] = yield plays
        return Measured(list(metrics(self.short_name, names, episodes)), samples(names, episodes, subject))

    def environments(self) -> Mapping[str, tuple[Environment, int]]:
        """Every kind and family by the name of its metric."""
        found: dict[str, tuple[Environment, int]] = {
            name: (self.difficulty.kind(name), count) for name, count in self.kinds.items()
        }
        return found | {family: (ReasoningGym(family=family), count) for family, count in self.families.items()}


def metrics(suite: str, names: Sequence[str], episodes: Sequence[Episode]) -> Iterator[Metric]:
    """The share of right answers; an episode whose environment failed is none."""
    failed = {f"{each.task.id}/{number}": float(each.failed) for number, each in enumerate(episodes)}
    known = [(name, each) for name, each in zip(names, episodes, strict=True) if not each.failed]
    if not known:
        raise CheckFailed("the environment failed in every episode", place=suite, fix="try it with `ingot env test`")
    every = {f"{name}/{each.task.id}": float(each.score.correct) for name, each in known}
    yield metric_of_units(f"{suite}/accuracy", every, "Puzzles solved, all kinds")
    for name in dict.fromkeys(names):
        units = {each.task.id: float(each.score.correct) for kind, each in known if kind == name}
        if units:
            yield metric_of_units(f"{suite}/{name}", units, f"Puzzles solved, {name}")
    if any(failed.values()):
        yield metric_of_units(f"{suite}/failed", failed, "Environment failed, puzzles", higher_is_better=False)


def samples(names: Sequence[str], episodes: Sequence[Episode], subject: Subject) -> list[Sample]:
    """The first replies, of every kind as many."""
    share = max(1, KEPT_SAMPLES // max(1, len(set(names))))
    kept = [place for place, name in enumerate(names) if names[:place].count(name) < share]
    return [sample_of(episodes[place], names[place], subject.tokenizer) for place in kept]
