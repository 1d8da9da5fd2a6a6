"""Evaluation beside a training run: measure the checkpoints of a stage while it makes them.

    ingot eval follow RUNS/NAME/pretrain --every 1000 --suite hellaswag,arc_easy --limit 500

With a rule to stop by, the stage is asked to end when the metric has not become better for so many measurements in a row
(train/saving/early_end.py): early stopping.

The history lies beside the stage, in RUNS/NAME/follow-STAGE/history, and the answers are remembered where the run's own eval
stages look for them: an `eval` with the same questions after the training has nothing left to compute.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ingot.evals.choose import choose
from ingot.evals.config import ChooseConfig, EvalConfig
from ingot.evals.evaluate import score
from ingot.evals.scores.every import Scored, follow_steps, measure_steps
from ingot.evals.scores.history import HISTORY, Measurement, read_history
from ingot.train.saving.early_end import ask_to_end, why_end
from ingot.workspace.stage import StageFolder


def follow_run(
    config: EvalConfig,
    stage: Path,
    every: int,
    patience: float,
    inputs: Mapping[str, Path],
    folder: StageFolder,
    rule: ChooseConfig | None = None,
) -> Path:
    """Measure every kept checkpoint of a running stage until it is done; returns the folder of the history.

    With `rule` the stage is asked to end as soon as its patience is at an end.
    """

    def measure(checkpoint: Path) -> Scored:
        return score(config, {**inputs, "checkpoint": checkpoint}, folder)

    history = folder.artifact(HISTORY)
    for step in follow_steps(stage, every, patience, folder.stop):
        measure_steps([step], stage, history, measure, say=folder.progress.say)
        if rule is not None:
            end_if_no_better(stage, read_history(history), rule, say=folder.progress.say)
    return history


def end_if_no_better(
    stage: Path, rows: Sequence[Measurement], rule: ChooseConfig, say: Callable[[str], None] = lambda text: None
) -> None:
    """Ask a stage to end if the measurements have been no better for as long as the rule allows."""
    choice = choose(rows, rule)
    if choice.early and why_end(stage) is None:
        why = f"{rule.metric} has not been better than at step {choice.step:,} ({choice.metric.estimate.value:.4g})"
        ask_to_end(stage, why)
        say(f"step {choice.ended:,}: {why}; the training is asked to end with its next checkpoint")
