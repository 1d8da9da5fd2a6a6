"""The table of a run folder, against sizes, tokens and losses worked out by hand, on branches trained for the test."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from ingot.cli.app import app
from ingot.lab.finished_runs import read_finished
from ingot.recipe.load import load_recipe
from ingot.workspace.errors import DataError, IngotError

ROOT = Path(__file__).parents[2]
RECIPE = """
name: small
stages:
  curate: { sources: [{ files: texts }], steps: [{ step: exact_dedup }] }
  tokenizer: { vocabulary_size: 272 }
  tokenize: {}
  pretrain: &trunk
    device: cpu
    precision: float32
    model: { width: 16, layers: layer, blocks: { layer: { feed_forward: { width: 16 } } } }
    sequence_length: 16
    batch_tokens: 64
    steps: 6
    schedule: { decay: 0 }
    checkpoints: { every: 2, keep_every: 2 }
    phases: [{ until: 1, weights: { all: 1 } }]
    validate_every: 6
    validation_rows: 8
  short: &branch
    stage: pretrain
    inputs: { checkpoint: pretrain }
    device: cpu
    precision: float32
    from_step: 2
    keep_optimizer: true
    sequence_length: 16
    batch_tokens: 64
    steps: 1
    schedule: { kind: wsd, warmup: 0, decay: 1 }
    phases: [{ until: 1, weights: { all: 1 } }]
    validate_every: 1
    validation_rows: 8
  middle: { <<: *branch, inputs: { checkpoint: pretrain }, from_step: 4, steps: 2, validate_every: 2 }
  later: { <<: *branch, inputs: { checkpoint: middle }, from_step: null, keep_optimizer: false, steps: 3, validate_every: 3 }
"""
WORDS = "the quick brown fox jumps over the lazy dog and the quiet cat sleeps in the warm sun\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trunk and two branches of it, of which one goes on."""
    folder = tmp_path_factory.mktemp("scaling")
    (folder / "texts").mkdir()
    for number in range(40):
        (folder / f"texts/{number}.txt").write_text(f"{number} {WORDS * 3}")
    (folder / "r.yaml").write_text(RECIPE.replace("texts", str(folder / "texts")))
    result = ingot("run", folder / "r.yaml", "--runs", folder / "runs")
    assert result.exit_code == 0, result.output
    return folder / "runs" / "small"


def ingot(*words: object) -> Result:
    return CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)


def test_branches_have_the_tokens_of_their_trunk_up_to_their_step(run: Path) -> None:
    stages = {stage["name"]: stage for stage in json.loads((run / "run.json").read_text())["stages"]}
    table = read_finished(run)
    found = {row.tokens: row for row in table.rows}
    # 64 tokens a step: two of the trunk and one; four of it, two of the branch and three that go on from there
    assert sorted(found) == [64 * 3, 64 * 9]
    assert {row.run for row in table.rows} == {stages["pretrain"]["folder"].rpartition("-")[2]}
    for tokens, name in ((64 * 3, "short"), (64 * 9, "later")):
        summary = stages[name]["summary"]
        assert found[tokens].loss == summary["validation_bits_per_byte"]
        assert found[tokens].parameters == stages["pretrain"]["summary"]["parameters"]
    assert {row.loss for row in read_finished(run, "loss").rows} == {
        stages[name]["summary"]["loss"] for name in ("short", "later")
    }


def test_what_cannot_be_read_is_named(run: Path, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match="the stage has no perplexity\n  fix: its numbers are loss, parameters, tokens, validation"
    ):
        read_finished(run, "perplexity")
    with pytest.raises(DataError, match="no finished pre-training"):
        read_finished(tmp_path)
    with pytest.raises(IngotError, match="--where does nothing for a run folder"):
        ingot("scaling", "fit", run, "--where", "data=web")
    with pytest.raises(DataError, match="2 rows for a law of 5 coefficients"):
        ingot("scaling", "fit", run)


def test_the_recipe_of_the_guide_branches_from_kept_steps() -> None:
    recipe = load_recipe(ROOT / "recipes" / "scaling" / "small.yaml", ["pretrain.model.width=48"])
    found = {stage.name: stage.config.model_dump() for stage in recipe.stages if stage.kind == "pretrain"}
    kept = found["pretrain"]["checkpoints"]["keep_every"]
    branches = {name: (options["from_step"], options["steps"]) for name, options in found.items() if name != "pretrain"}
    assert branches == {"short": (30, 10), "middle": (90, 30), "long": (240, 80)}
    assert all(step % kept == 0 for step, _ in branches.values())
