"""An interrupted stage that runs again ends exactly as if it had not been interrupted: metrics, weights, records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ingot.checkpoints.checkpoint import load_model
from ingot.post.algorithms.grpo import Grpo
from ingot.post.algorithms.ppo import Ppo
from ingot.recipe.stages import STAGES as KINDS
from ingot.workspace.errors import Interrupted
from ingot.workspace.files import read_jsonl
from ingot.workspace.progress import Progress
from ingot.workspace.stage import Stage, StageFolder
from tests.making.stages import stage_folder
from tests.post.making import SUMS, checkpoint_of, nudged
from tests.slow import slow
from tests.train.toy import TIMES

COMMON: dict[str, Any] = {
    "steps": 5,
    "sequence_length": 64,
    "tasks": SUMS,
    "optimizer": {"lr": 3e-3},
    "checkpoints": {"every": 100},
    "precision": "float32",
    "device": "cpu",
}
SAMPLING: dict[str, Any] = {"prompts_per_step": 8, "group": 4, "max_new_tokens": 4, "record_every": 2}
ANSWERS: dict[str, Any] = {"prompts": 60, "samples": 4, "max_new_tokens": 4, "batch_pairs": 8}
NO_THINK = {"no_think": {"operations": ("sum",), "largest": 5}}
STAGES: dict[str, tuple[Stage, dict[str, Any]]] = {
    "sft": (KINDS["sft"], {"task_conversations": 50, "batch_conversations": 8}),
    "prefer": (KINDS["prefer"], ANSWERS),
    "prefer, online": (KINDS["prefer"], ANSWERS | {"pairs": {"refresh": 2}}),
    "prefer, rated": (KINDS["prefer"], ANSWERS | {"algorithm": "kto"}),
    "rl": (KINDS["rl"], SAMPLING | {"algorithm": Grpo(reference_weight=0.05), "temperature": 0.9}),
    "rl, several updates": (
        KINDS["rl"],
        SAMPLING
        | {"algorithm": Ppo(reference_weight=0.05, reference_every=2), "mini_batches": 2, "epochs": 2, "steps": 7}
        | {"dynamic_sampling": {"rounds": 2, "ask": "missing"}, "exclude_solved": 0.9, "temperature_end": 0.7},
    ),
    "rl, curriculum": (
        KINDS["rl"],
        SAMPLING
        | {"difficulty": {"tried": {"samples": 2, "drawn": 8, "high": 0.9}, "curriculum": "learnable", "set_aside": {}}}
        | {"canary": {"every": 1, "window": 3, "held_out": {"count": 4}}}
        | {"tasks": {"weights": {"arithmetic": 1, "no_think": 1}, "arithmetic": {"digits_min": 1}} | NO_THINK},
    ),
    "distill": (KINDS["distill"], SAMPLING | {"group": 2}),
}
RECORDS = {
    "trajectories.jsonl": ("rl", "rl, several updates", "rl, curriculum", "distill"),
    "pairs.jsonl": ("prefer", "prefer, online"),
}


class StopAfter(Progress):
    """Asks for a stop when so many steps are done, as Ctrl-C would."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.folder: StageFolder | None = None

    def advance(self, done: int, **values: Any) -> None:
        if done == self.steps and self.folder is not None:
            self.folder.stop.request()


def run_interrupted(stage: Stage, config: Any, inputs: dict[str, Path], path: Path, stops: list[int]) -> dict[str, Any]:
    """Run to the end, interrupted after each of the given steps."""
    for steps in stops:
        progress = StopAfter(steps)
        progress.folder = stage_folder(path, progress)
        with pytest.raises(Interrupted):
            stage.run(config, inputs, progress.folder)
        assert not (path / "checkpoint").exists()
    return stage.run(config, inputs, stage_folder(path))


def timeless(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Metrics without what depends on the clock."""
    return [{name: row[name] for name in row if name not in TIMES} for row in rows]


@pytest.mark.parametrize("kind", [slow(kind) if kind in ("prefer", "prefer, rated", "rl") else kind for kind in STAGES])
def test_resuming_changes_nothing(
    kind: str, schooled: StageFolder, make_folder: Callable[[str], StageFolder], tmp_path: Path
) -> None:
    stage, options = STAGES[kind]
    config = stage.config.model_validate(COMMON | options)
    student = checkpoint_of(nudged(load_model(schooled.path), 0.02, seed=3), tmp_path / "student")
    inputs = {"checkpoint": student, "teacher": schooled.path}
    inputs = {role: inputs[role] for role in stage.needs if role not in stage.optional}
    straight = make_folder("straight")
    summary = stage.run(config, inputs, straight)
    again = run_interrupted(stage, config, inputs, tmp_path / "stopped", [1, 3])
    stopped = make_folder("stopped")
    assert again == summary
    assert timeless(stopped.metrics.read()) == timeless(straight.metrics.read())
    assert [row["step"] for row in straight.metrics.read()] == list(range(config.model_dump()["steps"]))
    weights, others = (load_model(folder.path).state_dict() for folder in (straight, stopped))
    before = load_model(student).state_dict()
    assert all(torch.equal(weights[name], others[name]) for name in weights)
    assert not all(torch.equal(weights[name], before[name]) for name in weights)
    for name in RECORDS:
        records = [read_jsonl(folder.path / name) for folder in (straight, stopped) if (folder.path / name).exists()]
        assert len(records) == (2 if kind in RECORDS[name] else 0)
        assert not records or records[0] == records[1]
