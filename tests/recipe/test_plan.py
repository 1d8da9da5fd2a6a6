"""Plans: costs against numbers worked out by hand, states against real folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ingot.recipe import plan as plan_module
from ingot.recipe.cost import UTILISATION, stage_costs
from ingot.recipe.flow import run_recipe
from ingot.recipe.load import load_recipe
from ingot.recipe.plan import make_plan, measure_machine
from ingot.workspace.errors import RecipeError

from . import toy
from .conftest import Load, Write

REAL = """
name: tiny
stages:
  tokenizer: {vocabulary_size: 512, inputs: {documents: given}}
  tokenize: {inputs: {documents: given}}
  pretrain:
    steps: 100
    batch_tokens: 1024
    sequence_length: 128
    micro_batch_tokens: 512
    phases: [{until: 1.0, weights: {all: 1}}]
    model:
      width: 64
      layers: layer*3
      blocks:
        layer:
          mixer: {heads: 4, key_value_heads: 2, head_width: 16}
          feed_forward: {width: 96}
  extend:
    stage: pretrain
    steps: 10
    batch_tokens: 1024
    sequence_length: 256
    phases: [{until: 1.0, weights: {all: 1}}]
  sft: {steps: 20, sequence_length: 128}
"""
EMBEDDING = 512 * 64
LAYER = 64 * (64 + 32 + 32) + 64 * 64 + 3 * 64 * 96  # query, key, value; output; gate, up, down
NORMS = (2 * 3 + 1) * 64


@pytest.fixture
def real(write: Write) -> Path:
    write("x", "given/part-0.parquet")
    return write(REAL, "tiny.yaml")


def test_costs_by_hand(real: Path) -> None:
    costs = stage_costs(load_recipe(real))
    assert set(costs) == {"pretrain", "extend", "sft"}
    pretrain = costs["pretrain"]
    assert pretrain.parameters == EMBEDDING + 3 * LAYER + NORMS
    assert pretrain.tokens == 102_400
    attention = 3 * 12 * 64 * 128 // 2  # scores and values over half of 128 positions, forward and twice that backward
    assert pretrain.flops == 102_400 * (6 * (EMBEDDING + 3 * LAYER) + attention)
    kept = 4 * 512 + 3 * (8 * 64 + 3 * 128 + 5 * 96)
    assert pretrain.memory_bytes == 16 * (EMBEDDING + 3 * LAYER + NORMS) + 4 * 512 * kept
    assert pretrain.seconds(1e9) == pytest.approx((pretrain.flops or 0) / 1e9 / UTILISATION)
    assert costs["extend"].parameters == pretrain.parameters  # the model of the checkpoint it goes on from
    assert (costs["sft"].parameters, costs["sft"].steps, costs["sft"].tokens) == (pretrain.parameters, 20, None)


def test_cost_of_a_preset_by_hand(real: Path, write: Write) -> None:
    """Nemotron's three kinds of layer: kept values count z, x, B and C of Mamba-2, and no feed-forward where none is."""
    start, end = REAL.index("    model:"), REAL.index("  extend:")
    recipe = write(REAL[:start] + "    model: {preset: nemotron-h-8b-mini, width: 128}\n" + REAL[end:], "preset.yaml")
    cost = stage_costs(load_recipe(recipe))["pretrain"]
    kept = 4 * 512 + 7 * 8 * 128  # the loss, and the stream of seven layers
    kept += 3 * 3 * 2 * (8 * 32 + 2 * 32) + 3 * (4 + 2 * 2) * 32 + 3 * 5 * 512  # Mamba-2, attention, feed-forward
    assert cost.memory_bytes == 16 * (cost.parameters or 0) + 4 * 512 * kept


def test_a_preset_over_a_recipe_that_spells_out_its_model_is_refused(real: Path, write: Write) -> None:
    over = f"extends: {real.name}\nstages: {{pretrain: {{model: {{preset: qwen3-8b-mini}}}}}}\n"
    message = r"preset 'qwen3-8b-mini' is hidden by .*; remove preset, or remove width, blocks and layers"
    with pytest.raises(RecipeError, match=message):
        load_recipe(write(over, "over.yaml"))
    with pytest.raises(RecipeError, match=message):
        load_recipe(real, ["pretrain.model.preset=qwen3-8b-mini"])


def test_unknown_model_has_unknown_cost(real: Path) -> None:
    """A tokenizer or a checkpoint on disk is not looked into: no number is better than a wrong one."""
    cost = stage_costs(load_recipe(real, ["pretrain.inputs={tokenizer: given}"]))["pretrain"]
    assert (cost.tokens, cost.parameters, cost.flops) == (102_400, None, None)


def test_plan_of_a_real_recipe(real: Path) -> None:
    made = make_plan(load_recipe(real), Path("runs"))
    assert [stage.status for stage in made.stages] == ["to do"] * 5
    assert made.stages[2].inputs == {"tokenizer": "tokenizer", "shards": "tokenize"}
    assert made.stages[2].folder == f"runs/tiny/pretrain-{made.stages[2].hash}"
    assert made.stages[2].seconds == made.stages[2].cost.seconds(made.machine.flops_per_second)
    assert json.loads(json.dumps(made.as_json()))["stages"][2]["cost"]["tokens"] == 102_400
    assert not Path("runs").exists()


def test_statuses(load: Load) -> None:
    recipe = load("name: small\nstages:\n  make:\n  train:\n  second: {stage: train}\n")
    run_recipe(recipe, table=toy.TABLE, to_stage="make")
    begun = make_plan(recipe, table=toy.TABLE).stages[1].folder
    Path(begun).mkdir()
    made = make_plan(recipe, table=toy.TABLE)
    assert [stage.status for stage in made.stages] == ["done", "to resume", "to do"]
    assert made.stages[0].seconds is not None
    assert made.stages[2].seconds is None


def test_measured_speed_is_plausible(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    import torch

    monkeypatch.setattr(plan_module, "MEASURE_SECONDS", 0.2)
    measured = measure_machine()
    if not torch.cuda.is_available():
        left = torch.randn(256, 256)
        began = time.perf_counter()
        for _ in range(20):
            left @ left
        alone = 20 * 2 * 256**3 / (time.perf_counter() - began)
        assert 0.05 < measured.flops_per_second / alone < 20
    assert measured.measured
