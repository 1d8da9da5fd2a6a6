"""The evaluations of a run: which checkpoint each one measured, and the table of what every stage changed.

The statistics are those of evals/: a change is paired where two checkpoints were measured on the same tasks, and
certain when chance alone would rarely do it (p < 0.05).
"""

from __future__ import annotations

import math
from collections.abc import Collection
from pathlib import Path
from typing import Any

from ingot.evals.scores.scores import Metric, metric_from_json
from ingot.evals.scores.table import Cell, table
from ingot.report.records import ScoreRow, StageRecord

Evaluation = tuple[str, StageRecord]  # the name of the checkpoint, and the stage that measured it


def evaluations(stages: list[StageRecord]) -> list[Evaluation]:
    """All evaluations in order, each under a name of its own."""
    found = [(evaluated(stage), stage) for stage in stages if stage.scores or stage.generations]
    names = [name for name, _ in found]
    return [(name if names.count(name) == 1 else f"{name} ({stage.name})", stage) for name, stage in found]


def evaluated(stage: StageRecord) -> str:
    """Which checkpoint an evaluation looked at: the stage that made it, or the last part of a path."""
    checkpoint = stage.inputs.get("checkpoint")
    name = checkpoint[0] if checkpoint else stage.name.removeprefix("eval-")
    return Path(name).name or name


def eval_table(found: list[Evaluation], decided: Collection[str] = ()) -> dict[str, Any]:
    """The table as plain data: checkpoints across, one row a metric. `decided` are metrics that a decision was made by."""
    scores = {name: _metrics(stage) for name, stage in found if stage.scores}
    rows = [
        {
            "metric": row.metric,
            "label": row.label,
            "higher_is_better": row.higher_is_better,
            "held_out": all(each[row.metric].held_out for each in scores.values() if row.metric in each)
            and row.metric not in decided,
            "chance": next((each[row.metric].chance for each in scores.values() if row.metric in each), None),
            "cells": [_cell(row.cells[name], scores[name].get(row.metric)) for name in scores],
        }
        for row in table(scores)
    ]
    return {"checkpoints": [{"name": name, "stage": stage.name} for name, stage in found if stage.scores], "rows": rows}


def _metrics(stage: StageRecord) -> dict[str, Metric]:
    finite = {name: score for name, score in stage.scores.items() if math.isfinite(score.value)}
    return {
        name: metric_of(name, score, stage.units.get(name, {}), stage.clusters.get(name, {}))
        for name, score in finite.items()
    }


def metric_of(name: str, score: ScoreRow, units: dict[str, float], clusters: dict[str, str]) -> Metric:
    """A row of scores.json as a metric."""
    row = score.model_dump() | {"count": score.count or 0, "label": label_of(name, score)}
    return metric_from_json(name, row, units, clusters)


def label_of(name: str, score: ScoreRow) -> str:
    """What a metric is called on the page."""
    return score.label or name.replace("_", " ").capitalize()


def _cell(cell: Cell | None, metric: Metric | None) -> dict[str, Any] | None:
    if cell is None or metric is None:
        return None
    plain: dict[str, Any] = {"value": cell.estimate.value, "standard_error": cell.estimate.standard_error}
    plain["interval"] = list(metric.interval())
    if cell.estimate.count:
        plain["count"] = cell.estimate.count
    if cell.change is not None:
        plain |= {"change": cell.change.value, "change_error": cell.change.standard_error}
        plain |= {"better": cell.better, "certain": cell.certain}
    return plain
