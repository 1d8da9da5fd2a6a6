"""Claims: when they hold, when they fail, and that a failure says its numbers after writing them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ingot.evals.config import ClaimConfig, VerdictConfig
from ingot.evals.scores.scores import Metric, Sample, load_scores, metric_of_units, save_scores
from ingot.evals.scores.statistics import Estimate
from ingot.evals.verdict import judge
from ingot.evals.verdict import run as run_stage
from ingot.workspace.errors import ArtifactError, CheckFailed, RecipeError
from ingot.workspace.files import read_json
from tests.making.stages import stage_folder


def accuracy(*values: float) -> dict[str, Metric]:
    units = {f"task-{number}": value for number, value in enumerate(values)}
    return {"accuracy/all": metric_of_units("accuracy/all", units, "Accuracy")}


def text(bits: float, baseline: float) -> dict[str, Metric]:
    rows = [-0.1, 0.0, 0.1]
    return {
        name: metric_of_units(name, {str(row): value + shift for row, shift in enumerate(rows)}, name, False)
        for name, value in (("bits_per_byte", bits), ("unigram_bits_per_byte", baseline))
    }


def claim(**values: Any) -> ClaimConfig:
    return ClaimConfig.model_validate({"metric": "accuracy/all", "stage": "rl", **values})


SCORES = {"sft": accuracy(0, 1, 0, 1, 0), "rl": accuracy(1, 1, 1, 1, 0)}
# per task: 1 0 1 0 0: mean 0.4, sd sqrt(0.3), standard error sqrt(0.06) = 0.2449


def test_paired_numbers_by_hand() -> None:
    row = judge(claim(above="sft", sigmas=1.6), SCORES)
    assert row["held"] and row["difference"] == pytest.approx(0.4)
    assert row["standard_error"] == pytest.approx(0.06**0.5)
    assert not judge(claim(above="sft", sigmas=1.7), SCORES)["held"]  # 0.4 / 0.2449 = 1.633
    assert judge(claim(above="sft", sigmas=1, by=0.15), SCORES)["held"]  # 0.25 > 0.2449
    assert not judge(claim(above="sft", sigmas=1, by=0.16), SCORES)["held"]
    assert not judge(claim(below="sft", sigmas=0), SCORES)["held"]


@pytest.mark.parametrize("sigmas", [0, 1.6, 1.7, 3])
@pytest.mark.parametrize("by", [0.0, 0.15, 0.4, 0.5])
@pytest.mark.parametrize("side", ["above", "below"])
def test_what_is_denied_is_the_opposite_of_what_is_claimed(side: str, by: float, sigmas: float) -> None:
    claimed, denied = (judge(claim(**{each: "sft"}, by=by, sigmas=sigmas), SCORES) for each in (side, f"not_{side}"))
    assert claimed["held"] is not denied["held"]
    assert denied["direction"] == f"not {side}" and denied["difference"] == pytest.approx(0.4)


def test_a_control_that_did_not_rise() -> None:
    """Equal scores did not move. A score whose error nobody knows is no evidence of that."""
    same = {"sft": accuracy(1, 1, 0), "rl": accuracy(1, 1, 0)}
    row = judge(claim(not_above="sft", sigmas=2), same)
    assert row["held"] and judge(claim(not_above="sft", sigmas=0), same)["held"]
    assert row["claim"].startswith(
        "held: accuracy/all of rl not above sft (0.6667 against 0.6667, difference +0.0000 ± 0.0000;"
    )
    assert "at most 2 standard errors asked" in row["claim"]
    rose = judge(claim(not_above="sft", sigmas=1), SCORES)
    assert not rose["held"] and rose["claim"].startswith(
        "FAILED: accuracy/all of rl not above sft (0.8000 against 0.4000"
    )
    single = {"rl": {"accuracy/all": Metric("accuracy/all", Estimate(0.1, float("inf"), 1), "Accuracy")}}
    assert not judge(claim(not_above=0.5), single)["held"]


def test_against_a_number() -> None:
    assert judge(claim(above=0.5, sigmas=1), SCORES)["held"]  # 0.8 ± 0.2
    assert not judge(claim(above=0.5, sigmas=2), SCORES)["held"]
    assert judge(claim(below=0.95, sigmas=0), SCORES)["held"]


def test_other_tasks_are_compared_as_independent() -> None:
    other = metric_of_units("accuracy/all", {"x": 0.0, "y": 0.2}, "Accuracy")
    row = judge(claim(above="sft"), {**SCORES, "sft": {"accuracy/all": other}})
    assert row["standard_error"] == pytest.approx((0.04 + 0.01) ** 0.5)


def test_equal_scores_are_no_gain_even_with_zero_error() -> None:
    same = {"sft": accuracy(1, 1, 1), "rl": accuracy(1, 1, 1)}
    assert not judge(claim(above="sft", sigmas=0), same)["held"]
    assert not judge(claim(above="sft", sigmas=3), same)["held"]


def test_unknown_error_never_holds() -> None:
    single = {"rl": {"accuracy/all": Metric("accuracy/all", Estimate(1.0, float("inf"), 1), "Accuracy")}}
    row = judge(claim(above=0.1), single)
    assert not row["held"] and row["standard_error"] is None


def test_the_unigram_baseline_is_paired_on_the_same_rows() -> None:
    row = judge(claim(metric="bits_per_byte", below="unigram", by=1.0, sigmas=3), {"rl": text(2.5, 4.6)})
    assert row["held"] and row["standard_error"] == pytest.approx(0.0, abs=1e-9)
    assert not judge(claim(metric="bits_per_byte", below="unigram", by=2.2), {"rl": text(2.5, 4.6)})["held"]
    with pytest.raises(RecipeError, match="'unigram_token_bits_per_byte', which the evaluation of rl does not have"):
        judge(claim(metric="bits_per_byte", below="unigram_token"), {"rl": text(2.5, 4.6)})
    assert claim(above="sft").reference_stage == "sft" and claim(above=1).reference_stage is None
    assert claim(metric="bits_per_byte", below="unigram").reference_stage is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "either above or below"),
        ({"above": 1, "below": 2}, "either above or below"),
        ({"above": "sft", "not_above": "sft"}, "or not_above or not_below"),
        ({"not_above": "unigram"}, "unigram is a baseline of bits_per_byte"),
        ({"above": "unigram"}, "unigram is a baseline of bits_per_byte"),
        ({"above": "sft", "sigma": 2}, "Extra inputs"),
        ({"above": "sft", "sigmas": -1}, "greater than or equal to 0"),
    ],
)
def test_claims_that_make_no_sense(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        claim(**values)


def test_unknown_names_are_errors_with_the_nearest_right_one() -> None:
    with pytest.raises(RecipeError, match="did you mean 'sft'"):
        judge(claim(above="sfft"), SCORES)
    with pytest.raises(RecipeError, match="did you mean 'accuracy/all'"):
        judge(claim(metric="acuracy/all", above="sft"), SCORES)


def folders(tmp_path: Path) -> dict[str, Path]:
    for stage, metrics in SCORES.items():
        save_scores(tmp_path / stage / "scores", metrics.values(), [])
    return {stage: tmp_path / stage / "scores" for stage in SCORES}


def test_scores_survive_the_disk(tmp_path: Path) -> None:
    unknown = Metric("one", Estimate(1.0, float("inf"), 1), "One")
    save_scores(tmp_path / "scores", [*SCORES["rl"].values(), unknown], [Sample("x", "", "", "")])
    assert load_scores(tmp_path / "scores") == {**SCORES["rl"], "one": unknown}
    assert load_scores(tmp_path) == load_scores(tmp_path / "scores")
    assert "Infinity" not in (tmp_path / "scores" / "scores.json").read_text(encoding="utf-8")
    with pytest.raises(ArtifactError, match="no scores here"):
        load_scores(tmp_path / "nothing")


def test_the_stage_writes_first_and_then_fails(tmp_path: Path) -> None:
    folder = stage_folder(tmp_path / "verdict-1", seed=0)
    good = {"metric": "accuracy/all", "stage": "rl", "above": "sft", "sigmas": 1}
    bad = {**good, "sigmas": 9}
    config = VerdictConfig.model_validate({"claims": [good, bad]})
    with pytest.raises(CheckFailed, match="1 of 2 claims did not hold") as caught:
        run_stage(config, {"scores": folders(tmp_path)}, folder)
    assert "+0.4000 ± 0.2449" in str(caught.value)
    written = read_json(folder.artifact("verdict") / "verdict.json")
    assert [row["held"] for row in written["claims"]] == [True, False]
    assert (written["held"], written["failed"]) == (1, 1)


def test_the_stage_passes(tmp_path: Path) -> None:
    folder = stage_folder(tmp_path / "verdict-1", seed=0)
    config = VerdictConfig(claims=(claim(above="sft", sigmas=1),))
    summary = run_stage(config, {"scores": folders(tmp_path)}, folder)
    assert summary["held"] == 1 and summary["claims"][0].startswith("held: accuracy/all of rl above sft")


def test_without_sigmas_an_error_that_is_not_known_does_not_matter() -> None:
    """One task has no standard error: 0 times infinity must not decide."""
    scores = {"sft": accuracy(0), "rl": accuracy(1)}
    assert judge(claim(above="sft", sigmas=0), scores)["held"] and judge(claim(above=0.5, sigmas=0), scores)["held"]
    assert not judge(claim(above="sft", sigmas=0.1), scores)["held"]
    assert not judge(claim(above="sft", sigmas=0, by=1), scores)["held"]
