"""`from_step` names a checkpoint that will exist: else an error when the recipe is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ingot.recipe.load import load_recipe
from ingot.recipe.recipe import Recipe
from ingot.train.check import COPIES as COPIES_BESIDE
from ingot.train.saving.steps import COPIES, Steps
from ingot.workspace.errors import RecipeError

PRETRAIN: dict[str, Any] = {
    "stage": "pretrain",
    "steps": 100,
    "sequence_length": 8,
    "batch_tokens": 8,
    "phases": [{"until": 1.0, "weights": {"all": 1.0}}],
}
MODEL = {"preset": "qwen3-8b-mini", "vocabulary_size": 512}


def load(stages: dict[str, Any]) -> Recipe:
    path = Path("recipe.yaml")
    inputs = {"shards": "data/shards", "tokenizer": "data/tokenizer"}
    path.write_text(yaml.safe_dump({"inputs": inputs, "stages": stages}, sort_keys=False), encoding="utf-8")
    return load_recipe(path, absent=True)


def branch(from_step: int, **checkpoints: Any) -> Recipe:
    first = {**PRETRAIN, "model": MODEL, "checkpoints": checkpoints}
    return load({"main": first, "decay": {**PRETRAIN, "from_step": from_step}})


@pytest.mark.parametrize(
    ("from_step", "checkpoints"),
    [
        (50, {"every": 10, "keep_every": 50}),
        (100, {"every": 30, "keep_every": 20}),  # the last step is saved if it is one to keep
        (60, {"every": 30, "keep_best": True}),  # it may be the best
    ],
)
def test_what_is_kept_can_be_begun_from(from_step: int, checkpoints: dict[str, Any]) -> None:
    assert branch(from_step, **checkpoints).stage("decay").inputs


@pytest.mark.parametrize(
    ("from_step", "checkpoints", "fix"),
    [
        (50, {"every": 10}, "set checkpoints.keep_every in main: other checkpoints are deleted at its end"),
        (50, {"every": 10, "keep_every": 40}, "main keeps every 40 steps: choose one of those, or set its"),
        (40, {"every": 30, "keep_every": 40}, "main saves every 30 steps: choose one of those, or set its"),
        (45, {"every": 30, "keep_best": True}, "main saves every 30 steps"),
        (150, {"every": 10, "keep_every": 50}, "main has 100 steps: choose one of them"),
    ],
)
def test_what_is_not_kept_is_an_error_before_anything_runs(
    from_step: int, checkpoints: dict[str, Any], fix: str
) -> None:
    with pytest.raises(RecipeError, match=f"decay.from_step: main keeps no checkpoint of step {from_step}") as caught:
        branch(from_step, **checkpoints)
    assert f"\n  fix: {fix}" in str(caught.value)


def test_a_stage_on_disk_is_looked_at() -> None:
    stage = Path("old/pretrain-1").absolute()
    (stage / "checkpoint").mkdir(parents=True)

    def decay(step: int) -> Recipe:
        return load({"decay": {**PRETRAIN, "from_step": step, "inputs": {"checkpoint": str(stage)}}})

    with pytest.raises(RecipeError, match=r"name a stage that ran with checkpoints\.keep_every"):
        decay(50)
    Steps(stage).path(50).mkdir(parents=True)
    assert decay(50).stage("decay").inputs
    with pytest.raises(RecipeError, match=r"no checkpoint of step 60 beside .*\n.*there are step-0000050"):
        decay(60)
    assert (Steps(stage).folder / COPIES).relative_to(stage) == Path(COPIES_BESIDE)
    (stage / COPIES_BESIDE).write_text("{}")
    assert decay(60).stage("decay").inputs, "it may be at the URL"
