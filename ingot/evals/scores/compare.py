"""Compares models by their scores: what changed, how sure that is, and on which questions.

The first folder is what the others are compared with. Two models that answered the same questions are compared question by
question (statistics.py); where only some questions are the same (another `limit`), on those; else as two independent means. One
difference in twenty between equal models has p < 0.05, so p-values are also given corrected by Holm's method for how many
differences the table has. The correction treats all rows as one family, so it is on the careful side where several metrics
are of the same answers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ingot.evals.scores.power import smallest_difference
from ingot.evals.scores.scores import Metric, load_scores
from ingot.evals.scores.statistics import Estimate, holm
from ingot.workspace.errors import RecipeError

LEVEL = 0.05
ENOUGH_SHARED = 0.5  # of the smaller set of questions, to compare question by question


@dataclass(frozen=True)
class MetricChange:
    """A metric of one model less that of the first."""

    difference: Estimate
    p_value: float
    corrected: float  # the p-value, for how many differences the comparison has
    shared: int  # questions that both answered, by which they are compared; 0: as independent means
    better: bool | None  # None: no difference
    gained: tuple[str, ...] = ()  # questions that this model does better
    lost: tuple[str, ...] = ()

    @property
    def certain(self) -> bool:
        """Whether chance alone would rarely do this, in a table of this size."""
        return self.corrected < LEVEL

    @property
    def smallest_shown(self) -> float:
        """The smallest true difference that so many questions show, four times in five (power.py)."""
        return smallest_difference(self.difference.standard_error)

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "difference": self.difference.value,
            "standard_error": _finite(self.difference.standard_error),
            "interval": [_finite(end) for end in self.difference.interval()],
            "smallest_shown": _finite(self.smallest_shown),
            "p_value": self.p_value,
            "corrected_p_value": self.corrected,
            "paired": self.shared > 0,
            "shared": self.shared,
            "better": self.better,
            "certain": self.certain,
            "gained": list(self.gained),
            "lost": list(self.lost),
        }


@dataclass(frozen=True)
class ComparedMetric:
    """A metric of all models; None where a model lacks it. `changes` are those of the second model and later ones."""

    name: str
    label: str
    held_out: bool
    metrics: tuple[Metric | None, ...]
    changes: tuple[MetricChange | None, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "metric": self.name,
            "label": self.label,
            "held_out": self.held_out,
            "values": [_value(metric) for metric in self.metrics],
            "changes": [change.as_json() if change else None for change in self.changes],
        }


@dataclass(frozen=True)
class ModelComparison:
    """Models and their metrics."""

    models: tuple[str, ...]
    rows: tuple[ComparedMetric, ...]

    @property
    def tests(self) -> int:
        """How many differences were tested."""
        return sum(change is not None for row in self.rows for change in row.changes)

    def as_json(self) -> dict[str, Any]:
        """Plain data, for `--json`."""
        return {"models": list(self.models), "tests": self.tests, "metrics": [row.as_json() for row in self.rows]}


def compare(folders: Sequence[Path]) -> ModelComparison:
    """The scores in two or more folders (of scores, of eval stages, or of a step in a history) side by side."""
    if len(folders) < 2:
        raise RecipeError("a comparison needs two folders of scores or more", fix="ingot eval compare A B")
    return compare_scores(dict(zip(distinct_names(folders), map(load_scores, folders), strict=True)))


def compare_scores(scores: Mapping[str, Mapping[str, Metric]]) -> ModelComparison:
    """Metrics by model side by side; the metrics that no two models share stay, without a change."""
    names = list(dict.fromkeys(name for metrics in scores.values() for name in metrics))
    rows = [_row(name, [metrics.get(name) for metrics in scores.values()]) for name in names]
    p_values = {
        f"{number} {row.name}": change.p_value
        for row in rows
        for number, change in enumerate(row.changes)
        if change is not None
    }
    corrected = holm(p_values)
    rows = [
        replace(
            row,
            changes=tuple(
                replace(change, corrected=corrected[f"{number} {row.name}"]) if change else None
                for number, change in enumerate(row.changes)
            ),
        )
        for row in rows
    ]
    return ModelComparison(tuple(scores), tuple(rows))


def distinct_names(folders: Sequence[Path]) -> list[str]:
    """A short name for each folder: the last part of its path, and more of it where two would have the same."""
    parts = [_parts(folder) for folder in folders]
    names = ["/".join(each) for each in parts]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(each[-depth:]) for each in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{name} ({number})" for number, name in enumerate(names, start=1)]


def change_between(before: Metric, after: Metric) -> MetricChange:
    """What changed, before any correction."""
    shared = _shared(before, after)
    if shared:
        before, after = before.part(shared), after.part(shared)
    difference, sign = after.minus(before), 1 if after.higher_is_better else -1
    up = {unit: sign * (after.units[unit] - before.units[unit]) for unit in shared}
    p_value = after.p_value(before)
    return MetricChange(
        difference=difference,
        p_value=p_value,
        corrected=p_value,
        shared=len(shared),
        better=None if difference.value == 0 else sign * difference.value > 0,
        gained=tuple(unit for unit, value in up.items() if value > 0),
        lost=tuple(unit for unit, value in up.items() if value < 0),
    )


def _shared(before: Metric, after: Metric) -> list[str]:
    """The questions of both, in their order; none if too few to stand for either."""
    shared = [unit for unit in before.units if unit in after.units]
    smaller = min(len(before.units), len(after.units))
    return shared if len(shared) > 1 and len(shared) >= ENOUGH_SHARED * smaller else []


def _row(name: str, metrics: Sequence[Metric | None]) -> ComparedMetric:
    first, *others = metrics
    there = [metric for metric in metrics if metric is not None]
    changes = [change_between(first, other) if first and other else None for other in others]
    held_out = all(metric.held_out for metric in there)
    return ComparedMetric(name, there[-1].label, held_out, tuple(metrics), tuple(changes))


def _parts(folder: Path) -> tuple[str, ...]:
    parts = [part for part in folder.resolve().parts if part != "/"]
    return tuple(parts[:-1] if parts[-1:] == ["scores"] and len(parts) > 1 else parts)


def _value(metric: Metric | None) -> dict[str, Any] | None:
    if metric is None:
        return None
    return {
        "value": metric.estimate.value,
        "standard_error": _finite(metric.estimate.standard_error),
        "interval": [_finite(end) for end in metric.interval()],
        "count": metric.estimate.count,
        "chance": metric.chance,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
