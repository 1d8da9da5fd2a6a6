"""The evaluations of a run: which checkpoint each one measured, and the table of what every stage changed.

The statistics are those of evals/: a change is paired where two checkpoints were measured on the same tasks, and
certain when it is larger than two of its standard errors.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from ingot.evals.scores import Metric
from ingot.evals.statistics import Estimate
from ingot.evals.table import Cell, table
from ingot.report.records import Score, StageRecord

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


def eval_table(found: list[Evaluation]) -> dict[str, Any]:
    """The table as plain data: checkpoints across, one row a metric."""
    scores = {name: _metrics(stage) for name, stage in found if stage.scores}
    rows = [
        {
            "metric": row.metric,
            "label": row.label,
            "higher_is_better": row.higher_is_better,
            "cells": [_cell(row.cells[name]) for name in scores],
        }
        for row in table(scores)
    ]
    return {"checkpoints": [{"name": name, "stage": stage.name} for name, stage in found if stage.scores], "rows": rows}


def _metrics(stage: StageRecord) -> dict[str, Metric]:
    finite = {name: score for name, score in stage.scores.items() if math.isfinite(score.value)}
    return {name: _metric(name, score, stage.units.get(name, {})) for name, score in finite.items()}


def _metric(name: str, score: Score, units: dict[str, float]) -> Metric:
    error = math.inf if score.standard_error is None else score.standard_error
    label = score.label or name.replace("_", " ").capitalize()
    return Metric(name, Estimate(score.value, error, score.count or 0), label, score.higher_is_better, units)


def _cell(cell: Cell | None) -> dict[str, Any] | None:
    if cell is None:
        return None
    plain: dict[str, Any] = {"value": cell.estimate.value, "standard_error": cell.estimate.standard_error}
    if cell.estimate.count:
        plain["count"] = cell.estimate.count
    if cell.change is not None:
        plain |= {"change": cell.change.value, "change_error": cell.change.standard_error}
        plain |= {"better": cell.better, "certain": cell.certain}
    return plain
