"""A sweep over toy stages: what runs once, what is resumed, what a failure stops, what is written."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ingot.evals.scores.scores import metric_of_units, save_scores
from ingot.lab.compare import compare
from ingot.lab.grid import read_axes
from ingot.lab.sweep import Outcome, Sweep, plan_sweep, run_sweep
from ingot.report.build import build
from ingot.report.read import read_run
from ingot.report.sweep import write_sweep
from ingot.workspace.errors import CheckFailed, RecipeError
from ingot.workspace.files import read_json
from ingot.workspace.runs import find_checkpoint, find_stage
from ingot.workspace.stage import StageFolder
from tests.recipe import toy

TEXT = """
name: small
seed: 3
stages:
  make: {text: a}
  train: {steps: 4}
  second: {stage: train, steps: 2}
  score: {after: each}
  judge: {claims: [better]}
"""
QUESTIONS = 8


def score(config: Any, inputs: Mapping[str, Any], folder: StageFolder) -> dict[str, Any]:
    """Right answers: as many as the last value of training, of eight questions."""
    values = read_json(inputs["checkpoint"] / "content.json")[1]
    units = {str(number): float(number < values[-1] % QUESTIONS) for number in range(QUESTIONS)}
    toy.CALLS.append(folder.path.name.rpartition("-")[0])
    save_scores(folder.artifact("scores"), [metric_of_units("right", units, "Right answers")], [])
    return {}


TABLE = toy.changed("score", run=score)


@pytest.fixture(autouse=True)
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    toy.CALLS.clear()
    Path("r.yaml").write_text(TEXT)
    return Path("r.yaml")


def plan(*changes: str, metric: str = "right@second", seeds: Sequence[int] = (), **options: Any) -> Sweep:
    axes, fixed = read_axes(changes)
    return plan_sweep(Path("r.yaml"), axes, metric, fixed=fixed, seeds=seeds, table=TABLE, **options)


def go(sweep: Sweep, **options: Any) -> tuple[list[str], list[Outcome]]:
    toy.CALLS.clear()
    return toy.CALLS, run_sweep(sweep, Path("runs"), table=TABLE, **options)


def expected(seed: int, steps: int) -> int:
    """What toy.py says of its steps, worked out here."""
    values: list[int] = []
    for _ in range(steps):
        values.append((sum(values) * 31 + seed + len(values)) % 1009)
    return values[-1]


def test_shared_stages_run_once_and_a_second_call_runs_nothing() -> None:
    sweep = plan("second.steps=1,2,3")
    calls, outcomes = go(sweep)
    assert calls == ["make@0", "train@0", *["second@0", "score-second"] * 3]
    assert [outcome.metric.estimate.value for outcome in outcomes if outcome.metric] == [
        expected(3, steps) % QUESTIONS / QUESTIONS for steps in (1, 2, 3)
    ]
    assert go(plan("second.steps=1,2,3,5"))[0] == ["second@0", "score-second"]


def test_seeds_are_those_of_what_trains_from_the_swept_stage_on() -> None:
    calls, outcomes = go(plan("second.steps=2,3", seeds=(5, 6)))
    assert calls.count("train@0") == 1 and calls.count("second@0") == 4
    values = {
        (o.trial.seed, dict(o.trial.values)["second.steps"]): o.metric.estimate.value for o in outcomes if o.metric
    }
    assert values == {
        (seed, steps): expected(seed, steps) % QUESTIONS / QUESTIONS for seed in (5, 6) for steps in (2, 3)
    }


def test_only_what_the_metric_needs_is_run() -> None:
    calls, _ = go(plan("train.steps=1,2", metric="right@train"))
    assert set(calls) == {"make@0", "train@0", "score-train"}


def test_a_failure_does_not_stop_the_others_and_is_resumed() -> None:
    _, outcomes = go(plan("second.fail_at=0,7"))
    assert [outcome.status for outcome in outcomes] == ["failed", "done"]
    assert "the toy failed as told" in str(outcomes[0].error)
    calls, _ = go(plan("second.fail_at=0,7"))
    assert calls == ["second@0"]  # the failed one alone is tried again


def test_a_failure_that_all_share_stops_the_sweep() -> None:
    with pytest.raises(CheckFailed, match="the toy failed as told"):
        go(plan("second.steps=1,2", "train.fail_at=0"))
    assert toy.CALLS.count("train@0") == 1


def test_trials_are_run_folders_and_the_runs_own_record_is_not_touched() -> None:
    sweep = plan("second.steps=1,2")
    go(sweep, finish=build)
    assert not Path("runs/small/run.json").exists()
    trial = sweep.folder(Path("runs")) / "steps=2"
    assert (trial / "report.html").exists()
    checkpoint = find_checkpoint(trial)
    assert checkpoint.resolve() == find_stage(trial / "second").resolve()
    assert len(read_json(checkpoint / "checkpoint/content.json")[1]) == 2
    record = read_run(trial)
    assert record.problems == []
    assert {stage.name: stage.status for stage in record.stages}["second"] == "done"


def test_what_is_written(tmp_path: Path) -> None:
    sweep = plan("second.steps=1,2,3", "second.shuffle=true,false")
    _, outcomes = go(sweep)
    page = write_sweep(sweep, outcomes, tmp_path)
    rows = list(csv.DictReader((tmp_path / "sweep.csv").open()))
    assert [(row["second.steps"], row["second.shuffle"]) for row in rows] == [
        (steps, shuffle) for steps in "123" for shuffle in ("true", "false")
    ]
    assert [float(row["right@second"]) for row in rows[::2]] == [expected(3, n) % 8 / 8 for n in (1, 2, 3)]
    found = json.loads((tmp_path / "sweep.json").read_text())
    values = [setting["value"] for setting in found["settings"]]
    assert values == sorted(values, reverse=True) and len(values) == 6
    assert found["axes"][0]["numeric"] and not found["axes"][1]["numeric"]
    assert "<script" in page.read_text() and "connect-src 'none'" in page.read_text()


def test_the_page_follows_the_trials() -> None:
    seen: list[bool] = []
    sweep = plan("second.steps=1,2,3")
    go(sweep, after=lambda outcomes: seen.append(compare(sweep, outcomes).complete))
    assert seen == [False, False, True]


def test_a_number_of_the_summary_is_a_metric_without_an_error() -> None:
    _, outcomes = go(plan("train.steps=2,3", metric="loss@train"))
    metric = outcomes[0].metric
    assert metric is not None and not metric.higher_is_better
    assert metric.estimate.value == pytest.approx(expected(3, 2) / 1009)
    with pytest.raises(RecipeError, match="--best max or --best min"):
        go(plan("train.steps=2,3", metric="steps@train"))
    _, outcomes = go(plan("train.steps=2,3", metric="steps@train", best="max"))
    assert [outcome.metric.estimate.value for outcome in outcomes if outcome.metric] == [2, 3]


@pytest.mark.parametrize(
    ("changes", "metric", "problem"),
    [
        (["second.steps=1,2"], "right@secnd", "did you mean second"),
        (["second.steps=1,2"], "rihgt@second", "did you mean right"),
        (["second.steps=1,2"], "right@train", "does not change right@train"),
        (["second.steps=1,x"], "right@second", "second.steps"),
        (["secnd.steps=1,2"], "right@second", "did you mean second"),
        (["second.steps=1"], "right@second", "nothing to sweep"),
    ],
)
def test_errors_have_a_place_and_a_fix(changes: list[str], metric: str, problem: str) -> None:
    with pytest.raises(RecipeError) as caught:
        go(plan(*changes, metric=metric))
    assert problem in str(caught.value)


def test_a_metric_without_a_stage_is_that_of_the_last_evaluation() -> None:
    assert plan("second.steps=1,2", metric="right").target.stage == "second"
    assert plan("second.steps=1,2", metric="pass@4").target.metric == "pass@4"
