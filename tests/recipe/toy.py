"""A tiny lifecycle to test the flow with: stages that take milliseconds, save their progress and can be killed.

`python toy.py RECIPE RUNS` runs a recipe of these stages in a process of its own.
"""

from __future__ import annotations

import copy
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from ingot.recipe.stages import Table
from ingot.workspace.config import Config
from ingot.workspace.errors import CheckFailed
from ingot.workspace.files import atomic_folder, read_json, write_json, write_text
from ingot.workspace.stage import Stage, StageFolder, imported

CALLS: list[str] = []
"""Kinds of the stages that ran in this process, with the step they began at."""


class ToyOptimizer(Config):
    """Nested options."""

    learning_rate: float = Field(default=1e-3, gt=0, description="step size")
    betas: tuple[float, float] = Field(default=(0.9, 0.95), description="averages")


class ToySource(Config):
    """An entry of a list."""

    files: str = Field(description="a pattern")
    weight: float = Field(default=1.0, description="share")


class MakeConfig(Config):
    """Makes documents."""

    text: str = Field(default="x", description="what the documents say")
    sources: tuple[ToySource, ...] = Field(default=(), description="where from")
    steps: int = Field(default=2, gt=0, description="how many")
    pause: float = Field(default=0.0, ge=0, description="seconds a step takes")


class TrainConfig(Config):
    """Makes a checkpoint."""

    steps: int = Field(default=3, gt=0, description="how many")
    pause: float = Field(default=0.0, ge=0, description="seconds a step takes")
    precision: Literal["auto", "float32", "bfloat16"] = Field(default="auto", description="number format")
    optimizer: ToyOptimizer = Field(default=ToyOptimizer(), description="the optimizer")
    model: str | None = Field(default=None, description="a model")
    shuffle: bool = Field(default=True, description="shuffle")
    fail_at: int | None = Field(default=None, description="raise an error at this step")


class ScoreConfig(Config):
    """Makes scores."""

    count: int = Field(default=2, gt=0, description="how many")


class ClaimsConfig(Config):
    """Makes a verdict."""

    claims: tuple[str, ...] = Field(min_length=1, description="what must hold")


def _content(path: Path) -> Any:
    return read_json(path / "content.json")


def _loop(folder: StageFolder, steps: int, pause: float, fail_at: int | None = None) -> list[int]:
    """Steps that are saved one by one; what they compute depends on the seed and on all earlier steps."""
    state = folder.path / "state.json"
    values: list[int] = read_json(state) if state.exists() else []
    CALLS.append(f"{folder.path.name.rpartition('-')[0]}@{len(values)}")
    folder.progress.start(steps, done=len(values))
    while len(values) < steps:
        folder.stop.check()
        if fail_at == len(values):
            raise CheckFailed("the toy failed as told", place=str(folder.path))
        time.sleep(pause)
        values.append((sum(values) * 31 + folder.seed + len(values)) % 1009)
        write_json(state, values)
        folder.metrics.append(len(values), {"value": values[-1]})
        folder.progress.advance(len(values), value=values[-1])
    return values


def _write(folder: StageFolder, kind: str, content: Any) -> None:
    with atomic_folder(folder.artifact(kind)) as temporary:
        for part in range(3):  # several files, so that a kill can come between them
            write_text(temporary / f"part-{part}.txt", json.dumps(content) * 50)
        write_json(temporary / "content.json", content)


def make(config: MakeConfig, inputs: Mapping[str, Any], folder: StageFolder) -> dict[str, Any]:
    """Documents from nothing."""
    _write(folder, "documents", [config.text, _loop(folder, config.steps, config.pause)])
    return {"documents": config.steps}


def train(config: TrainConfig, inputs: Mapping[str, Any], folder: StageFolder) -> dict[str, Any]:
    """A checkpoint from documents, and from an earlier checkpoint if there is one."""
    before = [_content(inputs[role]) for role in ("documents", "checkpoint", "teacher") if role in inputs]
    values = _loop(folder, config.steps, config.pause, config.fail_at)
    _write(folder, "checkpoint", [before, values, config.optimizer.learning_rate])
    return {"loss": values[-1] / 1009, "steps": config.steps}


def score(config: ScoreConfig, inputs: Mapping[str, Any], folder: StageFolder) -> dict[str, Any]:
    """Scores of a checkpoint."""
    CALLS.append(folder.path.name.rpartition("-")[0])
    _write(folder, "scores", [len(json.dumps(_content(inputs["checkpoint"]))), config.count])
    return {}


def judge(config: ClaimsConfig, inputs: Mapping[str, Any], folder: StageFolder) -> dict[str, Any]:
    """A verdict on all scores."""
    CALLS.append("verdict")
    _write(folder, "verdict", {name: _content(path) for name, path in inputs["scores"].items()})
    return {"claims": len(config.claims), "stages": ", ".join(inputs["scores"])}


def table(versions: Mapping[str, int] | None = None) -> Table:
    """The toy kinds, in the form of the real table."""
    checkpoint = {"checkpoint": "checkpoint"}
    kinds = (
        _kind("make", MakeConfig, make, makes=("documents",)),
        _kind(
            "train",
            TrainConfig,
            train,
            needs={"documents": "documents", **checkpoint},
            optional=("checkpoint",),
            makes=("checkpoint",),
        ),
        _kind("teach", TrainConfig, train, needs={**checkpoint, "teacher": "checkpoint"}, makes=("checkpoint",)),
        _kind(
            "listen",
            TrainConfig,
            train,
            needs={**checkpoint, "teacher": "checkpoint"},
            optional=("teacher",),
            makes=("checkpoint",),
        ),
        _kind("score", ScoreConfig, score, needs=checkpoint, makes=("scores",)),
        _kind("judge", ClaimsConfig, judge, needs={"scores": "scores"}, many=("scores",), makes=("verdict",)),
    )
    for kind in kinds:
        kind.version = (versions or {}).get(kind.kind, 1)
    return Table({kind.kind: kind for kind in kinds})


def _kind(kind: str, config: type[Config], run: Callable[..., dict[str, Any]], **roles: Any) -> Stage:
    made = type(
        kind, (Stage,), {"__doc__": "A toy.", "config": config, "run": imported(f"{__name__}:{run.__name__}"), **roles}
    )
    return made(kind)


TABLE = table()


def changed(kind: str, **attributes: Any) -> Table:
    """The table with other attributes of one kind."""
    other = copy.copy(TABLE[kind])
    vars(other).update(attributes)
    return Table({**TABLE, kind: other})


if __name__ == "__main__":
    from ingot.recipe.flow import run_recipe
    from ingot.recipe.load import load_recipe

    loaded = load_recipe(sys.argv[1], table=TABLE)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    run_recipe(loaded, Path(sys.argv[2]), table=TABLE)
