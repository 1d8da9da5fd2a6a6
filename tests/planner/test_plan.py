"""Plans: costs against numbers worked out by hand, states against real folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ingot.cli.show_plan import show_plan
from ingot.planner import plan as plan_module
from ingot.planner.cost import UTILISATION, stage_costs
from ingot.planner.plan import make_plan, measure_machine
from ingot.recipe.flow import run_recipe
from ingot.recipe.load import load_recipe
from ingot.workspace.errors import RecipeError
from tests.recipe import toy
from tests.recipe.conftest import Load, Write

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


def test_plan_of_a_real_recipe(real: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingot.planner.plan.this_gpu", lambda: None)  # a machine with a GPU would plan for that
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


SCALE = """
name: olmo3-7b
stages:
  tokenizer: {vocabulary_size: 100278, inputs: {documents: given}}
  tokenize: {inputs: {documents: given}}
  pretrain:
    tokens: 5.93T
    batch_tokens: 4194304
    sequence_length: 8192
    phases: [{until: 1.0, weights: {all: 1}}]
    model: {preset: olmo3-7b}
  sft: {steps: 20, sequence_length: 32768}
"""


@pytest.fixture
def large(real: Path, write: Write) -> Path:
    return write(SCALE, "olmo3-7b.yaml")


def test_plan_for_many_gpus(large: Path) -> None:
    made = make_plan(load_recipe(large), gpus=512, price=2.0)
    pretrain, sft = made.stages[2], made.stages[3]
    placed = pretrain.placement
    assert placed is not None and placed.fits and (placed.gpu, placed.gpus) == ("h100", 512)
    assert pretrain.cost.tokens == pytest.approx(5.93e12, rel=1e-6)
    assert placed.tokens_per_second is not None and placed.mfu is not None
    assert pretrain.seconds == pytest.approx((pretrain.cost.tokens or 0) / placed.tokens_per_second / 512)
    assert pretrain.gpu_hours == pytest.approx((pretrain.cost.tokens or 0) / placed.tokens_per_second / 3600)
    assert placed.mfu == pytest.approx(placed.tokens_per_second * (pretrain.cost.flops_per_token or 0) / 989e12)
    assert sft.placement is not None and sft.placement.fits and sft.seconds is None  # its tokens are unknown
    assert made.published is not None and made.published.tokens_per_second == 7700
    written = json.loads(json.dumps(made.as_json()))["stages"][2]["placement"]
    assert written["mesh"]["shard"] * written["mesh"]["replicate"] == 512
    assert written["memory"]["total"] == placed.memory.total


def test_plan_of_the_recipes_own_mesh(large: Path) -> None:
    """Without a number of devices the recipe's own mesh is judged."""
    made = make_plan(load_recipe(large, ["pretrain.mesh={shard: 64}", "pretrain.micro_batch_tokens=8192"]), gpu="h200")
    placed = made.stages[2].placement
    assert placed is not None and (placed.gpus, placed.micro_batch_tokens, placed.fits) == (64, 8192, True)
    alone = make_plan(load_recipe(large), gpu="h200").stages[2]
    assert alone.problem is not None and alone.problem.startswith("does not fit")
    broken = make_plan(load_recipe(large, ["pretrain.mesh={tensor: 3}"]), gpu="h200").stages[2]
    assert broken.problem == (
        "tensor (3) does not divide heads (32): choose a tensor that divides 32; "
        "tensor (3) does not divide key_value_heads (32): choose a tensor that divides 32; "
        "tensor (3) does not divide feed_forward.width (11008): choose a tensor that divides 11008"
    )
    with pytest.raises(RecipeError, match="one of a100, h100, h800, h200, b200"):
        make_plan(load_recipe(large), gpu="abacus")


@pytest.mark.parametrize("width", [80, 120])
def test_what_is_printed_fits_a_terminal(
    large: Path, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    show_plan(make_plan(load_recipe(large), gpus=512, price=2.0))
    out = capsys.readouterr().out
    assert max(len(line) for line in out.splitlines()) <= width
    words = " ".join(out.split())
    assert "7,700 tokens/s per H100, 43 % MFU as published (arXiv 2512.13961)" in words
    assert "mesh: { shard: 512 }" in words


def test_a_time_that_nobody_waits_for_is_in_years(
    large: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    made = make_plan(load_recipe(large))  # on this machine's processor
    show_plan(made)
    words = " ".join(capsys.readouterr().out.split())
    seconds = max(stage.seconds or 0 for stage in made.stages)
    assert f"~{seconds / 86400 / 365:,.0f} years" in words and "days" not in words


DEEPSEEK = """
name: deepseek-v3
inputs: {tokenizer: given, shards: given}
stages:
  pretrain:
    tokens: 10T
    batch_tokens: 62914560
    sequence_length: 4096
    micro_batch_tokens: 4096
    precision: float8
    float8_scaling: row
    activations: {keep: blocks}
    mesh: {shard: 128, pipeline: 16, expert: 8, reshard_after_forward: false}
    phases: [{until: 1.0, weights: {all: 1}}]
    model: {preset: deepseek-v3}
"""


def test_a_plan_says_how_far_it_is_from_the_published_run(
    real: Path, write: Write, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a ratio, with the reason and what the published trainer's practices explain, in the output and in JSON."""
    recipe = load_recipe(write(DEEPSEEK, "deepseek.yaml"))
    made = make_plan(recipe, gpu="h800")
    written = json.loads(json.dumps(made.as_json()))["comparison"]
    assert written["stage"] == "pretrain"
    assert written["published_tokens_per_second"] == pytest.approx(14.8e12 / 2.664e6 / 3600)
    assert written["ratio"] == pytest.approx(written["tokens_per_second"] / written["published_tokens_per_second"])
    assert written["ratio"] == pytest.approx(0.48, abs=0.02)
    assert [one["practice"].split()[0] for one in written["explained"]] == ["experts", "exchanges", "results"]
    monkeypatch.setenv("COLUMNS", "120")
    show_plan(made)
    words = " ".join(capsys.readouterr().out.split())
    assert "compared this estimate is 0.48 of the published speed (734 / 1,543 tokens/s per GPU;" in words
    assert "the published trainer did what ours does not (arXiv 2412.19437, section 3)" in words
    for one in written["explained"]:
        assert f"{one['ratio']:.2f} with" in words
    assert "the rest is not explained" in words

    elsewhere = make_plan(recipe, gpu="h100")
    assert elsewhere.published is not None and elsewhere.comparison is None
    show_plan(elsewhere)
    words = " ".join(capsys.readouterr().out.split())
    assert "compared no ratio: the published run was on another device" in words
