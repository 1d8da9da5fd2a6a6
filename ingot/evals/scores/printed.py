"""Writes metrics as the rows of a table: with standard errors, counts and the score of chance."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

from ingot.evals.scores.scores import Metric, load_scores
from ingot.workspace.command import Results


def score_rows(metrics: Iterable[Metric]) -> list[dict[str, str]]:
    """A row for each metric."""
    return [
        {
            "metric": f"{metric.name} ({metric.also})" if metric.also else metric.name,
            "value": f"{metric.estimate.value:.4f}",
            "± error": f"{metric.estimate.standard_error:.4f}" if math.isfinite(metric.estimate.standard_error) else "",
            "n": f"{metric.estimate.count:,}",
            "chance": "" if metric.chance is None else f"{metric.chance:.3f}",
        }
        for metric in metrics
    ]


def results(folder: Path) -> Results | None:
    """What an eval stage measured; None if it has not run."""
    if not (folder / "scores").exists():
        return None
    return Results(
        score_rows(load_scores(folder).values()), "scores", ("ingot", "eval", "compare", str(folder), "OTHER")
    )
