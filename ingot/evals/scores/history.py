"""The history of a training run in scores: what each kept checkpoint scored.

    STAGE/history/step-0000100/{scores.json, tasks.json, clusters.json, samples.jsonl, step.json}

Each folder is a scores artifact of its own (scores.py), so that two steps are compared like two models; the last one is that of
the finished checkpoint. step.json is {"step", "seconds"}: a stage that was killed goes on behind the last folder, and knows what
it has cost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ingot.evals.scores.scores import Metric, Sample, load_scores, save_scores
from ingot.evals.scores.signal import MetricHistory, MetricRun, Signal, signal
from ingot.workspace.files import read_json

HISTORY, STEP, PREFIX = "history", "step.json", "step-"


def step_folder(history: Path, step: int) -> Path:
    """Where the scores of a step are; named like its checkpoint."""
    return history / f"{PREFIX}{step:07d}"


@dataclass(frozen=True)
class Measurement:
    """What the checkpoint of one step scored, and what that cost."""

    step: int
    metrics: Mapping[str, Metric]
    seconds: float


def save_step(folder: Path, step: int, metrics: Sequence[Metric], samples: Sequence[Sample], seconds: float) -> None:
    """Add the scores of a step to the history in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    save_scores(step_folder(folder, step), metrics, samples, {STEP: {"step": step, "seconds": round(seconds, 3)}})


def read_history(folder: Path) -> list[Measurement]:
    """The history in order of steps; `folder` is it, or the eval stage that made it, or that stage's scores. Empty if none."""
    candidates = (folder / HISTORY, folder.parent / HISTORY, folder)
    found = next((each for each in candidates if each.name == HISTORY and each.is_dir()), None)
    if found is None:
        return []
    rows = []
    for place in sorted(path for path in found.glob(f"{PREFIX}*") if path.name.removeprefix(PREFIX).isdigit()):
        cost = read_json(place / STEP)
        rows.append(Measurement(int(cost["step"]), load_scores(place), float(cost["seconds"])))
    return sorted(rows, key=lambda row: row.step)


def signals(histories: Mapping[tuple[str, int], Sequence[Measurement]]) -> dict[str, Signal]:
    """The signal of every metric over histories, which are by model and seed."""
    metrics = {m.name: m for rows in histories.values() for row in rows for m in row.metrics.values()}
    return {name: signal(history_of(metric, histories)) for name, metric in metrics.items()}


def history_of(metric: Metric, histories: Mapping[tuple[str, int], Sequence[Measurement]]) -> MetricHistory:
    """One metric's values out of histories."""
    runs = [
        MetricRun(
            model,
            seed,
            {row.step: row.metrics[metric.name].estimate.value for row in rows if metric.name in row.metrics},
        )
        for (model, seed), rows in histories.items()
    ]
    return MetricHistory(
        metric.name,
        [run for run in runs if run.scores],
        metric.chance,
        metric.estimate.standard_error,
        metric.higher_is_better,
    )
