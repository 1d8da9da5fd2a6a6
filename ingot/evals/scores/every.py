"""Measures the checkpoints that a training stage keeps: after it has ended, or beside it while it runs.

After: every kept checkpoint of a multiple of `every` steps, then the finished one. Beside: each as it appears, until the stage
is done; if none appears for so long, the follower gives up. What is in the history already is not measured again, so that both
can be killed and started anew.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from ingot.evals.scores.history import HISTORY, read_history, save_step, step_folder
from ingot.evals.scores.scores import SCORES, Metric, Sample
from ingot.train.saving.early_end import ended_at
from ingot.train.saving.steps import Steps, find_step
from ingot.workspace.errors import ArtifactError
from ingot.workspace.files import read_json
from ingot.workspace.interrupt import StopSignal
from ingot.workspace.progress import format_values
from ingot.workspace.stage import DONE, StageFolder

Scored = tuple[Sequence[Metric], Sequence[Sample]]  # metrics, and samples
OPTIONS = "recipe.yaml"  # of a stage, in its folder
LOOK_EVERY = 2.0  # seconds
SHOWN = 3  # metrics in a line of progress


def kept_steps(stage: Path, every: int) -> list[int]:
    """The steps before the last whose checkpoints the training stage in folder `stage` has kept, of multiples of `every`."""
    final = final_step(stage)
    steps = [step for step in Steps(stage).there() if step % every == 0 and step not in (0, final)]
    if not steps:
        raise ArtifactError(
            f"no checkpoint of a multiple of {every} steps is kept",
            place=str(stage / "steps"),
            fix=f"set checkpoints.keep_every: {every} in that stage, or leave out eval's `every`",
        )
    return steps


def follow_steps(
    stage: Path, every: int, patience: float, stop: StopSignal, *, look_every: float = LOOK_EVERY
) -> Iterator[int]:
    """The steps of a running stage as their checkpoints appear, until it is done; an error if none does in `patience` seconds."""
    seen: set[int] = set()
    deadline = time.monotonic() + patience
    while True:
        done = final_step(stage)  # before the look, so that a last checkpoint that comes in between is not missed
        for step in Steps(stage).there():
            if step % every == 0 and step not in (0, done) and step not in seen:
                seen.add(step)
                yield step
                deadline = time.monotonic() + patience
        if done is not None:
            return
        if time.monotonic() > deadline:
            raise ArtifactError(
                f"no new checkpoint of a multiple of {every} steps in {patience:g} seconds, and the stage is not done",
                place=str(stage),
                fix="is it still training? then give a longer patience; else resume it",
            )
        stop.check()
        time.sleep(look_every)


def measure_history(
    checkpoint: Path, every: int, folder: StageFolder, measure: Callable[[Path], Scored]
) -> tuple[Sequence[Metric], Sequence[Sample], dict[str, Any]]:
    """Measure the kept checkpoints of the stage that made `checkpoint`, then that: its metrics and samples, and a summary."""
    stage, history = checkpoint.parent, folder.artifact(HISTORY)
    final = final_step(stage)
    if final is None:
        raise ArtifactError(
            "its steps are not known: this is not the checkpoint of a finished training stage",
            place=str(checkpoint),
            fix="leave out eval's `every`, or give the folder of a training stage",
        )
    steps = kept_steps(stage, every)
    measure_steps(steps, stage, history, measure, say=folder.progress.say)
    began = time.monotonic()
    metrics, samples = measure(checkpoint)
    save_step(history, final, metrics, samples, time.monotonic() - began)
    seconds = sum(row.seconds for row in read_history(history))
    share = share_of_compute(stage, seconds)
    summary: dict[str, Any] = {"steps_measured": len(steps) + 1, "seconds_measuring": round(seconds, 1)}
    return metrics, samples, summary | ({} if share is None else {"share_of_compute": round(share, 4)})


def measure_steps(
    steps: Iterable[int],
    stage: Path,
    history: Path,
    measure: Callable[[Path], Scored],
    say: Callable[[str], None] = lambda text: None,
) -> None:
    """Measure the checkpoints of `steps` of a training stage, those that are not in the history yet."""
    for step in steps:
        if not (step_folder(history, step) / SCORES).exists():
            began = time.monotonic()
            metrics, samples = measure(find_step(stage, step))
            save_step(history, step, metrics, samples, time.monotonic() - began)
            say(f"step {step:,}: {format_values({each.name: each.estimate.value for each in metrics[:SHOWN]})}")


def final_step(stage: Path) -> int | None:
    """How many steps a finished training stage has, by its options, or fewer if it ended early; None if it is not finished, or
    not a training stage."""
    if not (stage / DONE).exists():
        return None
    ended = ended_at(stage)
    if ended is not None:
        return ended
    try:
        return int(yaml.safe_load((stage / OPTIONS).read_text(encoding="utf-8"))["steps"])
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError):
        return None


def share_of_compute(stage: Path, seconds: float) -> float | None:
    """The share of evaluating in the time of evaluating and training; None if the training's is not known."""
    try:
        training = float(read_json(stage / DONE)["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return seconds / (seconds + training) if seconds + training > 0 else None
