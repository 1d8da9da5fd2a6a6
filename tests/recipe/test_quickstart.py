"""The quickstart: its stages have claims that a copy of their input fails, and it ends with a model that can be shown."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ingot.evals.config import EvalConfig, VerdictConfig
from ingot.evals.evaluate import run as run_eval
from ingot.evals.scores.scores import Metric, load_scores, save_scores
from ingot.evals.scores.statistics import Estimate
from ingot.evals.verdict import run as run_verdict
from ingot.recipe.flow import run_recipe
from ingot.recipe.load import load_recipe
from ingot.recipe.recipe import FromStage
from ingot.workspace.errors import CheckFailed
from ingot.workspace.runs import find_checkpoint
from tests.making.stages import stage_folder
from tests.report.conftest import real_run as real_run

RECIPE = Path(__file__).parents[2] / "recipes" / "quickstart.yaml"
EARNING = ("extend", "sft", "prefer", "rl", "distill")


def measured(bits: float, tasks: float, differences: float) -> dict[str, float]:
    """What a checkpoint scores: on text, on the tasks of SFT, and on the differences of the stages after it."""
    kinds = ("all", "arithmetic", "strings", "calculator", "no_think")
    text = {"bits_per_byte": bits, "unigram_bits_per_byte": 4.9}
    own = {"differences/accuracy/all": differences, "margin/arithmetic": differences}
    return text | own | {f"accuracy/{kind}": tasks for kind in kinds}


SCORES = {  # of a run in which every stage did what it is for
    "pretrain": measured(3.5, 0.0, 0.0),
    "extend": measured(3.3, 0.0, 0.0),
    "sft": measured(6.0, 0.98, 0.5),
    "prefer": measured(6.0, 0.98, 0.6),
    "rl": measured(6.0, 0.98, 0.8),
    "distill": measured(6.0, 0.98, 0.75),
}


@pytest.fixture
def scores(tmp_path: Path) -> dict[str, Path]:
    """The scores of SCORES on disk, by stage."""
    for stage, values in SCORES.items():
        metrics = [Metric(name, Estimate(value, 0.01, 200), name) for name, value in values.items()]
        save_scores(tmp_path / stage, metrics, [])
    return {stage: tmp_path / stage for stage in SCORES}


def verdict(scores: dict[str, Path], folder: Path) -> int:
    """How many claims of the recipe hold of these scores; CheckFailed if one does not."""
    config = load_recipe(RECIPE).stage("verdict").config
    assert isinstance(config, VerdictConfig)
    return int(run_verdict(config, {"scores": scores}, stage_folder(folder))["held"])


def test_all_claims_hold_of_a_good_run(scores: dict[str, Path], tmp_path: Path) -> None:
    assert verdict(scores, tmp_path / "verdict") >= len(EARNING)


@pytest.mark.parametrize("stage", EARNING)
def test_a_stage_that_only_copies_its_input_fails_the_verdict(
    stage: str, scores: dict[str, Path], tmp_path: Path
) -> None:
    source = load_recipe(RECIPE).stage(stage).inputs["checkpoint"]
    assert isinstance(source, FromStage)
    with pytest.raises(CheckFailed, match=rf"FAILED: \S+ of {stage} (above|below) {source.stage}"):
        verdict({**scores, stage: scores[source.stage]}, tmp_path / "verdict")


FEW: dict[str, object] = {  # questions a suite: what a copy scores does not depend on how many are asked
    "base.suites.0.rows": 4,
    "base.suites.2.kinds": [{"kind": "no_think", "count": 4}],
    "eval.suites.0.kinds": [{"kind": "no_think", "count": 4}],
    **{
        f"eval.suites.{suite}.difficulty.{kind}": None
        for suite in (0, 1)
        for kind in ("arithmetic", "strings", "calculator")
    },
    "eval.suites.1.kinds": [{"kind": "no_think", "count": 4}],
    "eval.suites.2.kinds": [{"kind": "arithmetic", "count": 8, "samples": 3}],
    "eval.suites.3.kinds": [{"kind": "arithmetic", "count": 4}],
}


@pytest.mark.parametrize("stage", EARNING)
def test_the_claims_refuse_a_copied_checkpoint(stage: str, real_run: Path, tmp_path: Path) -> None:
    """Checkpoints that real stages wrote, measured by the recipe's own suites: a copy scores as its input, also where it is
    sampled, so every claim that compares the two fails."""
    recipe = load_recipe(RECIPE, FEW)
    source = recipe.stage(stage).inputs["checkpoint"]
    assert isinstance(source, FromStage)
    before = find_checkpoint(real_run / source.stage)
    copied = shutil.copytree(before, tmp_path / "copied")
    measure = recipe.stage(f"base-{stage}" if stage == "extend" else f"eval-{stage}").config
    assert isinstance(measure, EvalConfig)
    (shards,) = real_run.glob("tokenize-*/shards")
    if (
        stage == "sft"
    ):  # its input is a base model, of which the recipe asks only tasks: the metric is of the first suite
        measure = measure.model_copy(update={"suites": measure.suites[:1]})
    scores = {}
    for name, checkpoint in ((source.stage, before), (stage, copied)):
        folder = stage_folder(tmp_path / name)
        run_eval(measure, {"checkpoint": checkpoint, "shards": shards}, folder)
        scores[name] = folder.artifact("scores")
    values = [{name: each.estimate.value for name, each in load_scores(path).items()} for path in scores.values()]
    assert values[0] == values[1]
    verdict = recipe.stage("verdict").config
    assert isinstance(verdict, VerdictConfig)
    claims = [claim for claim in verdict.claims if (claim.stage, claim.reference_stage) == (stage, source.stage)]
    assert claims
    for claim in claims:
        one = VerdictConfig(claims=(claim,))
        with pytest.raises(CheckFailed, match=rf"FAILED: \S+ of {stage} (above|below) {source.stage}"):
            run_verdict(one, {"scores": scores}, stage_folder(tmp_path / "verdict"))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_model_that_it_ends_with_can_be_shown(seed: int, tmp_path: Path) -> None:
    """The recipe as it is; shortened, with a verdict of its own, it runs in tests/report/real_run.py."""
    result = run_recipe(load_recipe(RECIPE, {"seed": seed}), tmp_path)
    (folder,) = (stage.folder for stage in result.stages if stage.name == "eval-distill")
    scores = {name: metric.estimate.value for name, metric in load_scores(folder).items()}
    assert scores["accuracy/arithmetic"] >= 0.95
    for kind in ("strings", "calculator", "no_think"):
        assert scores[f"accuracy/{kind}"] >= 0.9, kind
    assert scores["tool_call_success"] >= 0.9
