"""What a sweep compares: a metric of the evaluation of a stage, or a number that a training stage itself reports.

`accuracy/all@sft` is the metric accuracy/all of the stages that measure the checkpoint of sft. `loss@pretrain`, which no
evaluation has, is that number of the stage's summary; it has no standard error of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from ingot.evals.scores.scores import Metric, load_scores
from ingot.evals.scores.statistics import Estimate
from ingot.recipe.flow import RunResult
from ingot.recipe.recipe import FromStage, Recipe
from ingot.recipe.stages import Table
from ingot.workspace.errors import CheckFailed, RecipeError
from ingot.workspace.nearest import suggestion

Best = Literal["auto", "max", "min"]
LOWER_IS_BETTER = ("loss", "bits_per_byte", "perplexity", "cross_entropy", "divergence", "seconds")


@dataclass(frozen=True)
class Target:
    """A metric, the stage that it is about, and the stages that measure it (none: the stage's own summary)."""

    metric: str
    stage: str
    measured_by: tuple[str, ...]
    best: Best = "auto"

    @property
    def text(self) -> str:
        """As it is written."""
        return f"{self.metric}@{self.stage}"

    def needs(self, recipe: Recipe) -> frozenset[str]:
        """The stages that must run before it can be read."""
        needed = {self.stage, *self.measured_by}
        for stage in reversed(recipe.stages):
            if stage.name in needed:
                needed |= set(stage.needed_stages())
        return frozenset(needed)


def find_target(recipe: Recipe, text: str, best: Best, table: Table) -> Target:
    """The target that `METRIC@STAGE` names; without a stage, that of the last evaluation."""
    place = f"metric {text}"
    measuring = {
        stage.name: _subject(recipe, stage.name) for stage in recipe.stages if _measures(recipe, stage.name, table)
    }
    metric, at, name = text.rpartition("@")
    if not at or name.isdecimal():  # pass@4
        if not measuring:
            raise RecipeError("the recipe measures nothing", place=place, fix="write METRIC@STAGE, as in loss@pretrain")
        metric, name = text, list(measuring.values())[-1]
    stages = [stage.name for stage in recipe.stages]
    if name not in stages:
        raise RecipeError(f"no stage is named {name}", place=place, fix=suggestion(name, stages, "stages"))
    if not metric:
        raise RecipeError("a metric needs a name", place=place, fix="write --metric METRIC@STAGE")
    found = [measured for measured, subject in measuring.items() if name in (measured, subject)]
    return Target(metric, name, tuple(found), best)


def _measures(recipe: Recipe, name: str, table: Table) -> bool:
    return "scores" in table.find(recipe.stage(name).kind).makes


def _subject(recipe: Recipe, name: str) -> str:
    """The stage whose checkpoint a stage measures; itself, if that is none of this recipe."""
    checkpoint = recipe.stage(name).inputs.get("checkpoint")
    return checkpoint.stage if isinstance(checkpoint, FromStage) else name


def measure(target: Target, result: RunResult) -> Metric:
    """The target's metric in a run that is finished so far."""
    stages = {stage.name: stage for stage in result.stages}
    known: dict[str, Metric] = {}
    for name in reversed(target.measured_by):
        known |= load_scores(stages[name].folder)
    found = known.get(target.metric) or _reported(target, stages[target.stage].summary)
    if found is None:
        numbers = [name for name, value in stages[target.stage].summary.items() if _is_number(value)]
        fix = suggestion(target.metric, dict.fromkeys([*known, *numbers]), f"metrics of {target.stage}")
        raise RecipeError(f"{target.stage} has no metric {target.metric}", place=f"metric {target.text}", fix=fix)
    if not math.isfinite(found.estimate.value):
        raise CheckFailed(f"{target.text} is {found.estimate.value}", place=str(stages[target.stage].folder))
    return found if target.best == "auto" else replace(found, higher_is_better=target.best == "max")


def _reported(target: Target, summary: Mapping[str, object]) -> Metric | None:
    """A number of a stage's summary as a metric."""
    value = summary.get(target.metric)
    if not _is_number(value):
        return None
    lower = any(word in target.metric for word in LOWER_IS_BETTER)
    if target.best == "auto" and not lower:
        fix = "write --best max or --best min; in an ablation lower_is_better: true or false"
        raise RecipeError(f"is more or less {target.metric} better?", place=f"metric {target.text}", fix=fix)
    label = target.metric.replace("_", " ").capitalize()
    return Metric(target.metric, Estimate(float(str(value)), math.inf, 1), label, higher_is_better=not lower)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
