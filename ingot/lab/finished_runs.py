"""Read the finished pre-training of a run folder as a table for the law of the loss.

Of stages that begin from each other only the last counts: a trunk whose learning rate never fell has not the loss of its horizon.
Its branches have: D is what the trunk had read at the step where the branch left it, and the branch's own tokens. Branches of one
trunk are horizons of one run, and share its luck.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ingot.lab.fit_law import MeasuredRun
from ingot.lab.run_table import Columns, RunTable
from ingot.recipe.folders import read_done
from ingot.workspace.errors import DataError, listed
from ingot.workspace.files import read_json
from ingot.workspace.stage import DONE

LOSS = "validation_bits_per_byte"


@dataclass(frozen=True)
class _Trained:
    """A finished pre-training: where, what it reached, and the stage and step that it began from."""

    folder: Path
    summary: Mapping[str, Any]
    begins: str | None
    from_step: int | None


def read_finished(run: Path, loss: str | None = None) -> RunTable:
    """The runs of RUNS/NAME, of all its sweeps and ablations; the loss is a number of the stages' summary."""
    stages = _trained(run)
    begun = {stage.begins for stage in stages.values()}
    rows = [_row(key, stages, loss or LOSS) for key in stages if key not in begun]
    if not rows:
        raise DataError("no finished pre-training", place=str(run), fix="give RUNS/NAME of runs, or a table")
    return RunTable(tuple(rows), Columns(parameters="parameters", tokens="tokens", loss=loss or LOSS))


def _trained(run: Path) -> dict[str, _Trained]:
    """The finished pre-training stages by hash."""
    found = {}
    for record in sorted(run.glob(f"*/{DONE}")):
        folder = record.parent
        key = folder.name.rpartition("-")[2]
        done = read_done(folder, key, ("checkpoint",))
        if done is not None and done.kind == "pretrain":
            options = yaml.safe_load((folder / "recipe.yaml").read_text())
            found[key] = _Trained(folder, done.summary, done.inputs.get("checkpoint"), options["from_step"])
    return found


def _row(key: str, stages: Mapping[str, _Trained], loss: str) -> MeasuredRun:
    """A last stage as a run."""
    stage = stages[key]
    value = stage.summary.get(loss)
    if not isinstance(value, int | float):
        numbers = sorted(name for name, each in stage.summary.items() if isinstance(each, int | float))
        raise DataError(f"the stage has no {loss}", place=str(stage.folder), fix=f"its numbers are {listed(numbers)}")
    tokens = stage.summary["tokens"]
    while stage.begins is not None:
        parent = stages.get(stage.begins)
        if parent is None:
            fix = "give a run folder that has all the training of its models"
            raise DataError("it began from a checkpoint whose tokens are not known", place=str(stage.folder), fix=fix)
        step = stage.from_step
        tokens += parent.summary["tokens"] if step is None else _tokens_at(parent.folder, step)
        key, stage = stage.begins, parent
    return MeasuredRun(stage.summary["parameters"], tokens, value, key)


def _tokens_at(folder: Path, step: int) -> int:
    """What a stage had read when it saved this step."""
    return int(read_json(folder / "steps" / f"step-{step:07d}" / "training.json")["tokens"])
