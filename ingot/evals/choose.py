"""The stage `choose`: take the checkpoint of the step that scored best, out of a history (history.py).

Without `patience` it is the best of all that were measured. With it, the one that early stopping would have ended with: the best
up to the first time that so many measurements in a row are no better. The metric is then no proof of the result any more: the
recipe must mark its suite `held_out: false` (check.py), and the report shows the mark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingot.evals.config import ChooseConfig
from ingot.evals.scores.every import final_step
from ingot.evals.scores.history import Measurement, read_history
from ingot.evals.scores.scores import Metric
from ingot.workspace.errors import RecipeError
from ingot.workspace.files import atomic_folder, write_json
from ingot.workspace.nearest import suggestion
from ingot.workspace.stage import StageFolder

CHOICE = "choice.json"


@dataclass(frozen=True)
class StepChoice:
    """The step that was chosen, where the search ended, and whether that was early (patience) or with the last step."""

    step: int
    metric: Metric
    ended: int
    early: bool = False


def run(config: ChooseConfig, inputs: Mapping[str, Path], folder: StageFolder) -> dict[str, Any]:
    """Write the weights of the best step; makes a checkpoint, and choice.json."""
    from ingot.checkpoints.checkpoint import open_model, write_checkpoint
    from ingot.train.saving.steps import find_step

    rows = read_history(inputs["scores"])
    choice = choose(rows, config)
    stage = inputs["checkpoint"].parent
    path = inputs["checkpoint"] if choice.step == final_step(stage) else find_step(stage, choice.step)
    with atomic_folder(folder.artifact("checkpoint")) as temporary:
        write_checkpoint(open_model(path), temporary)
    last = rows[-1].metrics[config.metric]
    summary = {
        "step": choice.step,
        config.metric: choice.metric.estimate.value,
        "of_last_step": last.estimate.value,
        "ended": choice.ended,
    }
    values = {str(row.step): row.metrics[config.metric].estimate.value for row in rows if config.metric in row.metrics}
    write_json(folder.path / CHOICE, {"metric": config.metric, **summary, "values": values})
    return summary


def choose(rows: Sequence[Measurement], config: ChooseConfig) -> StepChoice:
    """The best step of a history; of equal ones the first."""
    measured = [(row.step, row.metrics[config.metric]) for row in rows if config.metric in row.metrics]
    if not measured:
        known = sorted({name for row in rows for name in row.metrics})
        if not known:
            raise RecipeError(
                "the scores have no history to choose from", place="choose", fix="write `every: N` in the eval stage"
            )
        fix = suggestion(config.metric, known, "metrics of its history")
        raise RecipeError(f"choose.metric: no step has {config.metric}", place="choose", fix=fix)
    higher = measured[-1][1].higher_is_better if config.best == "auto" else config.best == "max"
    best, since = measured[0], 0
    for step, metric in measured[1:]:
        better = metric.estimate.value - best[1].estimate.value
        if (better if higher else -better) > config.min_improvement:
            best, since = (step, metric), 0
        else:
            since += 1
        if config.patience is not None and since >= config.patience:
            return StepChoice(*best, ended=step, early=True)
    return StepChoice(*best, ended=measured[-1][0])
