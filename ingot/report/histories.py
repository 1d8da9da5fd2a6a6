"""Scores over the steps of a training run, how far each metric can be trusted, and what measuring cost.

A band around a curve is two standard errors to each side; the class (stable, noisy, blind) is that of
evals/scores/signal.py. The runs of one page are one model and one seed: what needs more is not judged here.
"""

from __future__ import annotations

import math
from typing import Any

from ingot.evals.scores.signal import MetricHistory, MetricRun, signal
from ingot.recipe.stages import STAGES
from ingot.report.evaluations import Evaluation, label_of
from ingot.report.records import ScoreRow, StageRecord


def histories(found: list[Evaluation]) -> list[dict[str, Any]]:
    """The curves of every evaluation that measured several steps."""
    return [
        {
            "checkpoint": name,
            "stage": stage.name,
            "metrics": [_curve(metric, stage.history) for metric in _names(stage)],
        }
        for name, stage in found
        if len(stage.history) > 1
    ]


def _names(stage: StageRecord) -> list[str]:
    return list(dict.fromkeys(name for scores in stage.history.values() for name in scores))


def _curve(metric: str, history: dict[int, dict[str, ScoreRow]]) -> dict[str, Any]:
    scores = {
        step: rows[metric]
        for step, rows in sorted(history.items())
        if metric in rows and math.isfinite(rows[metric].value)
    }
    last = list(scores.values())[-1] if scores else ScoreRow(value=math.nan)
    values = {step: score.value for step, score in scores.items()}
    judged = signal(
        MetricHistory(metric, [MetricRun("", 0, values)], last.chance, last.standard_error, last.higher_is_better)
    ).as_json()
    return {
        "metric": metric,
        "label": label_of(metric, last),
        "higher_is_better": last.higher_is_better,
        "chance": last.chance,
        "steps": list(scores),
        "values": list(values.values()),
        "errors": [score.standard_error for score in scores.values()],
        "signal": judged,
    }


def compute(stages: list[StageRecord]) -> dict[str, float] | None:
    """Seconds of training and of measuring, and the share of measuring; None without either."""
    training_kinds = {name for name, kind in STAGES.items() if kind.divides}
    training = math.fsum(stage.seconds or 0.0 for stage in stages if stage.kind in training_kinds)
    measuring_kinds = {name for name, kind in STAGES.items() if "scores" in kind.makes}
    measuring = math.fsum(stage.seconds or 0.0 for stage in stages if stage.kind in measuring_kinds)
    if not training or not measuring:
        return None
    return {"training": training, "measuring": measuring, "share": measuring / (measuring + training)}
