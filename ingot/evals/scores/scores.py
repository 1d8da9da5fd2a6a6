"""Scores on disk: what an evaluation found, and per task what two evaluations are compared by.

    scores/scores.json    {metric: {"value", "standard_error", "count", "clusters", "interval", "higher_is_better", "label",
                           "chance", "held_out"}}, and "also" where it has another name
    scores/tasks.json     {metric: {unit id: value}}: the mean of each task (or row of text) that the metric averages
    scores/clusters.json  {metric: {unit id: cluster}}, of metrics whose units are not independent
    scores/samples.jsonl  {"task_id", "kind", "prompt", "completion", "expected", "correct"}, and "mode" (`Sample`)

A standard error that is not known (one unit only) is null in JSON and infinite here. Invariant: a metric with units is
the plain mean of its units, so the paired difference of two checkpoints is the difference of their values. `interval` is that of
95 %; `chance` is what guessing would give, null where that is unknown. A metric that is not `held_out` has made decisions.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from ingot.evals.scores.statistics import (
    Estimate,
    estimate_units,
    independent_difference,
    interval_of_units,
    paired_difference,
    paired_p_value,
)
from ingot.workspace.errors import ArtifactError
from ingot.workspace.files import atomic_folder, read_json, write_json, write_jsonl

SCORES, TASKS, CLUSTERS, SAMPLES = "scores.json", "tasks.json", "clusters.json", "samples.jsonl"
KEPT_SAMPLES = 12  # answers of a suite that are kept for people to read
Thing = TypeVar("Thing")


@dataclass(frozen=True)
class Sample:
    """One answer that is kept for people to read: a row of samples.jsonl."""

    task_id: str
    kind: str
    prompt: str
    completion: str | None
    expected: Any = None
    correct: bool | None = None
    mode: str = ""  # of thinking, where a suite is measured in several

    def to_row(self) -> dict[str, Any]:
        """As it is written."""
        row = asdict(self)
        return row if self.mode else {key: value for key, value in row.items() if key != "mode"}


def spread(things: Sequence[Thing]) -> Sequence[Thing]:
    """As many as are kept, from the first to the last: where the kinds of a suite come one after the other."""
    return things[:: -(-len(things) // KEPT_SAMPLES)] if things else things


@dataclass(frozen=True)
class Metric:
    """One measured number; `units` is what it is the mean of, by id."""

    name: str
    estimate: Estimate
    label: str
    higher_is_better: bool = True
    units: Mapping[str, float] = field(default_factory=dict)
    clusters: Mapping[str, str] = field(
        default_factory=dict
    )  # of units that are not independent: which belong together
    chance: float | None = None  # what guessing would give
    held_out: bool = True  # false: decisions were made by it
    also: str = ""  # its other name, which people may look for: acc_norm

    def interval(self) -> tuple[float, float]:
        """The interval of 95 %: Wilson's for few questions of right or wrong, else Student's."""
        return interval_of_units(self.units, self.clusters) if self.units else self.estimate.interval()

    def pairs_with(self, other: Metric) -> bool:
        """Whether both were measured on the same units."""
        return bool(self.units) and self.units.keys() == other.units.keys()

    def minus(self, other: Metric) -> Estimate:
        """This metric less another: paired when both were measured on the same units, else as independent."""
        if self.pairs_with(other):
            return paired_difference(self.units, other.units, self.clusters or other.clusters)
        return independent_difference(self.estimate, other.estimate)

    def p_value(self, other: Metric) -> float:
        """How likely a difference at least so large would be, were both the same."""
        if self.pairs_with(other):
            return paired_p_value(self.units, other.units, self.clusters or other.clusters)
        return independent_difference(self.estimate, other.estimate).p_value()

    def part(self, units: Collection[str]) -> Metric:
        """The same metric over some of its units, at least one."""
        kept = {unit: value for unit, value in self.units.items() if unit in units}
        clusters = {unit: cluster for unit, cluster in self.clusters.items() if unit in kept}
        return replace(self, estimate=estimate_units(kept, clusters), units=kept, clusters=clusters)


def metric_of_units(
    name: str,
    units: Mapping[str, float],
    label: str,
    higher_is_better: bool = True,
    *,
    clusters: Mapping[str, str] | None = None,
    chance: float | None = None,
    also: str = "",
) -> Metric:
    """The mean over units, with its standard error: over the units, or over clusters of units that belong together."""
    found = estimate_units(units, clusters)
    return Metric(name, found, label, higher_is_better, dict(units), dict(clusters or {}), chance, also=also)


def of_equal_weight(groups: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The units of several groups, weighted so that their plain mean is the mean of the groups' means."""
    members = [group for group in groups if group]
    total = sum(map(len, members))
    return {id: value * total / (len(members) * len(units)) for units in members for id, value in units.items()}


def save_scores(
    folder: Path,
    metrics: Iterable[Metric],
    samples: Sequence[Sample],
    others: Mapping[str, Any] | None = None,
) -> None:
    """Write the scores artifact; `others` are JSON files beside it, by name."""
    metrics = list(metrics)
    with atomic_folder(folder) as temporary:
        write_json(temporary / SCORES, {metric.name: _to_json(metric) for metric in metrics})
        write_json(temporary / TASKS, {metric.name: dict(metric.units) for metric in metrics if metric.units})
        write_json(temporary / CLUSTERS, {metric.name: dict(metric.clusters) for metric in metrics if metric.clusters})
        for name, value in (others or {}).items():
            write_json(temporary / name, value)
        write_jsonl(temporary / SAMPLES, [sample.to_row() for sample in samples])


def load_scores(folder: Path) -> dict[str, Metric]:
    """Read a scores artifact; `folder` is the artifact or the stage folder that holds it."""
    folder = folder if (folder / SCORES).exists() else folder / "scores"
    if not (folder / SCORES).exists():
        known = sorted(str(path.parent.parent) for path in folder.parent.glob(f"*/scores/{SCORES}"))
        fix = f"give one of its stages: {', '.join(known)}" if known else "give the folder of a finished eval stage"
        raise ArtifactError("no scores here", place=str(folder), fix=fix)
    units, clusters = (read_json(folder / name) if (folder / name).exists() else {} for name in (TASKS, CLUSTERS))
    return {
        name: metric_from_json(name, row, units.get(name, {}), clusters.get(name, {}))
        for name, row in read_json(folder / SCORES).items()
    }


def _to_json(metric: Metric) -> dict[str, Any]:
    return {
        "value": metric.estimate.value,
        "standard_error": _finite(metric.estimate.standard_error),
        "count": metric.estimate.count,
        "clusters": _clusters(metric.units, metric.clusters),
        "interval": [_finite(end) for end in metric.interval()],
        "higher_is_better": metric.higher_is_better,
        "label": metric.label,
        "chance": metric.chance,
        "held_out": metric.held_out,
    } | ({"also": metric.also} if metric.also else {})


def metric_from_json(
    name: str, row: Mapping[str, Any], units: Mapping[str, float], clusters: Mapping[str, str]
) -> Metric:
    """A metric from its row of scores.json, which may be one of an earlier version: without chance, marks and clusters."""
    error, groups = row["standard_error"], row.get("clusters")
    found = Estimate(
        row["value"],
        math.inf if error is None else error,
        row["count"],
        None if groups is None or groups == row["count"] else groups - 1,
    )
    kept = (row.get("chance"), row.get("held_out", True), row.get("also", ""))
    return Metric(name, found, row["label"], row["higher_is_better"], units, clusters, *kept)


def _clusters(units: Mapping[str, float], clusters: Mapping[str, str]) -> int | None:
    """How many clusters there are, those of one unit among them; None where units are independent."""
    return len({(unit in clusters, clusters.get(unit, unit)) for unit in units}) if clusters else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
