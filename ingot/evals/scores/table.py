"""The table of what each stage did to each number: one row a metric, one cell a stage.

The change is against the nearest earlier stage that has the metric, paired where both were measured on the same tasks.
`certain` is true when chance alone would do this less than once in twenty times (p < 0.05, statistics.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ingot.evals.scores.scores import Metric
from ingot.evals.scores.statistics import Estimate

LEVEL = 0.05


@dataclass(frozen=True)
class Cell:
    """A metric after one stage; `change` is None where there is nothing earlier to compare with."""

    stage: str
    estimate: Estimate
    change: Estimate | None
    better: bool | None
    certain: bool

    def text(self) -> str:
        """`0.853 ±0.021`."""
        return f"{self.estimate.value:.3f}{_plus_minus(self.estimate)}"


@dataclass(frozen=True)
class MetricRow:
    """A metric through the stages; a stage that did not measure it has no cell."""

    metric: str
    label: str
    higher_is_better: bool
    cells: Mapping[str, Cell | None]


def table(scores_by_stage: Mapping[str, Mapping[str, Metric]]) -> list[MetricRow]:
    """Rows in the order in which metrics first appear; stages in the order given."""
    names = list(dict.fromkeys(name for scores in scores_by_stage.values() for name in scores))
    return [_row(name, scores_by_stage) for name in names]


def _row(name: str, scores_by_stage: Mapping[str, Mapping[str, Metric]]) -> MetricRow:
    cells: dict[str, Cell | None] = {}
    previous: Metric | None = None
    latest: Metric | None = None
    for stage, scores in scores_by_stage.items():
        latest = scores.get(name)
        cells[stage] = _cell(stage, latest, previous) if latest is not None else None
        previous = latest or previous
    assert previous is not None  # the name came from one of the stages
    return MetricRow(name, previous.label, previous.higher_is_better, cells)


def _cell(stage: str, metric: Metric, previous: Metric | None) -> Cell:
    if previous is None:
        return Cell(stage, metric.estimate, None, None, False)
    change = metric.minus(previous)
    better = None if change.value == 0 else (change.value > 0) == metric.higher_is_better
    return Cell(stage, metric.estimate, change, better, metric.p_value(previous) < LEVEL)


def _plus_minus(estimate: Estimate) -> str:
    return f" ±{estimate.standard_error:.3f}" if math.isfinite(estimate.standard_error) else ""
