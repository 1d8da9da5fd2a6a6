"""Scores on disk: what an evaluation found, and per task what two evaluations are compared by.

    scores/scores.json    {metric: {"value", "standard_error", "count", "higher_is_better", "label"}}
    scores/tasks.json     {metric: {unit id: value}}: the mean of each task (or row of text) that the metric averages
    scores/samples.jsonl  {"task_id", "kind", "prompt", "completion", "expected", "correct"}

A standard error that is not known (one unit only) is null in JSON and infinite here. Invariant: a metric with units is
the plain mean of its units, so the paired difference of two checkpoints is the difference of their values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ingot.evals.statistics import Estimate, estimate, independent_difference, paired_difference
from ingot.workspace.errors import ArtifactError
from ingot.workspace.files import atomic_folder, read_json, write_json, write_jsonl

SCORES, TASKS, SAMPLES = "scores.json", "tasks.json", "samples.jsonl"


@dataclass(frozen=True)
class Metric:
    """One measured number; `units` is what it is the mean of, by id."""

    name: str
    estimate: Estimate
    label: str
    higher_is_better: bool = True
    units: Mapping[str, float] = field(default_factory=dict)

    def minus(self, other: Metric) -> Estimate:
        """This metric less another: paired when both were measured on the same units, else as independent."""
        if self.units and self.units.keys() == other.units.keys():
            return paired_difference(self.units, other.units)
        return independent_difference(self.estimate, other.estimate)


def metric_of_units(name: str, units: Mapping[str, float], label: str, higher_is_better: bool = True) -> Metric:
    """The mean over independent units, with the standard error over them."""
    return Metric(name, estimate(list(units.values())), label, higher_is_better, dict(units))


def save_scores(folder: Path, metrics: Iterable[Metric], samples: Sequence[dict[str, Any]]) -> None:
    """Write the scores artifact."""
    metrics = list(metrics)
    with atomic_folder(folder) as temporary:
        write_json(temporary / SCORES, {metric.name: _to_json(metric) for metric in metrics})
        write_json(temporary / TASKS, {metric.name: dict(metric.units) for metric in metrics if metric.units})
        write_jsonl(temporary / SAMPLES, list(samples))


def load_scores(folder: Path) -> dict[str, Metric]:
    """Read a scores artifact; `folder` is the artifact or the stage folder that holds it."""
    folder = folder if (folder / SCORES).exists() else folder / "scores"
    if not (folder / SCORES).exists():
        raise ArtifactError("no scores here", place=str(folder), fix="give the folder of a finished eval stage")
    units = read_json(folder / TASKS) if (folder / TASKS).exists() else {}
    return {name: _from_json(name, row, units.get(name, {})) for name, row in read_json(folder / SCORES).items()}


def _to_json(metric: Metric) -> dict[str, Any]:
    error = metric.estimate.standard_error
    return {
        "value": metric.estimate.value,
        "standard_error": error if math.isfinite(error) else None,
        "count": metric.estimate.count,
        "higher_is_better": metric.higher_is_better,
        "label": metric.label,
    }


def _from_json(name: str, row: Mapping[str, Any], units: Mapping[str, float]) -> Metric:
    error = row["standard_error"]
    found = Estimate(row["value"], math.inf if error is None else error, row["count"])
    return Metric(name, found, row["label"], row["higher_is_better"], units)
