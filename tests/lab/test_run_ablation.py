"""A laboratory over toy stages in processes of their own: what runs once, what a kill loses, what a budget and a failure stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from ingot.lab.ablation import Ablation, plan_ablation
from ingot.lab.findings import Findings, find
from ingot.lab.run_ablation import Budget, run_ablation
from ingot.lab.state import read_state
from ingot.workspace.errors import CheckFailed, Interrupted, RecipeError
from ingot.workspace.files import read_json
from ingot.workspace.interrupt import StopSignal
from tests.lab.toy_lab import TABLE, WORKER, calls

RECIPE = """
name: small
stages:
  make: { text: a }
  train: { steps: 2 }
  second: { stage: train, steps: 2 }
"""
FILE = """
baseline: r.yaml
seeds: 2
measure: { stage: second, metric: loss, lower_is_better: true }
curve: []
interventions:
  faster: { set: { second.optimizer.learning_rate: 0.5 }, predicted: better by a half }
  slower: { set: { second.optimizer.learning_rate: 0.0001 } }
"""
RUNS = Path("runs")
DEADLINE = 120.0
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    Path("r.yaml").write_text(RECIPE)
    Path("a.yaml").write_text(FILE)


def ablation(text: str | None = None) -> Ablation:
    if text is not None:
        Path("a.yaml").write_text(text)
    return plan_ablation(Path("a.yaml"), TABLE)


def go(made: Ablation, jobs: int = 2, **options: object) -> Findings:
    state = run_ablation(made, RUNS, jobs=jobs, worker=WORKER, **options)  # type: ignore[arg-type]
    return find(made, RUNS, state)


def test_what_runs_share_runs_once_and_a_second_call_runs_nothing() -> None:
    found = go(ablation())
    assert Counter(name.split("-")[0] for name in calls("begin")) == {"train": 1, "second": 6}
    assert [run.status for run in found.runs] == ["done"] * 6
    [faster, slower] = found.decisions.decisions
    assert faster.kind == "adopt" and slower.kind == "reject"
    assert faster.differences[0].paired and faster.differences[0].estimate.value == pytest.approx(-0.499)
    assert (RUNS / "small/ablations/a/faster,seed=2/run.json").exists()
    go(ablation())
    assert len(calls("begin")) == 7
    assert [entry["text"] for entry in read_state(RUNS / "small/ablations/a").predicted["faster"]] == [
        "better by a half"
    ]


@pytest.mark.slow
def test_a_prediction_that_comes_after_the_result_is_marked() -> None:
    go(ablation(FILE.replace(", predicted: better by a half", "")))
    go(ablation(FILE))
    [entry] = read_state(RUNS / "small/ablations/a").predicted["faster"]
    assert entry["late"] and entry["text"] == "better by a half"


def test_a_kill_loses_no_finished_run_and_none_runs_twice() -> None:
    Path("r.yaml").write_text(RECIPE.replace("stage: train, steps: 2", "stage: train, steps: 6, pause: 0.2"))
    lab = subprocess.Popen([sys.executable, "-m", "tests.lab.toy_lab", "lab", "a.yaml"])
    until = time.monotonic() + DEADLINE
    while len(calls("end")) < 3 and time.monotonic() < until:
        time.sleep(0.05)
    os.kill(lab.pid, signal.SIGKILL)
    lab.wait(DEADLINE)
    before = set(calls("end"))
    assert 3 <= len(before) < 7
    begun = len(calls("begin"))
    made = ablation()
    found = go(made)  # waits for the processes of the one that was killed, which stop by themselves
    assert [run.status for run in found.runs] == ["done"] * 6
    assert Counter(calls("end")) == Counter(dict.fromkeys(calls("end"), 1))
    assert not before & set(calls("begin")[begun:])
    assert len(set(calls("end"))) == 7


def test_a_stop_saves_and_the_next_call_goes_on() -> None:
    Path("r.yaml").write_text(RECIPE.replace("stage: train, steps: 2", "stage: train, steps: 40, pause: 0.1"))
    stop = StopSignal()
    made = ablation()

    def ask() -> None:
        folders = list(RUNS.glob("small/second-*/state.json"))
        if folders:
            stop.request()

    class Watching(StopSignal):
        @property
        def requested(self) -> bool:
            ask()
            return stop.requested

    with pytest.raises(Interrupted, match="what each run has done is saved"):
        go(made, stop=Watching())
    assert not [name for name in calls("end") if name.startswith("second")]
    saved = [read_json(path) for path in RUNS.glob("small/second-*/state.json")]
    assert saved and all(0 < steps < 40 for steps in saved)


@pytest.mark.slow
def test_failures_are_named_tried_again_and_adopted_never() -> None:
    text = FILE.replace("set: { second.optimizer.learning_rate: 0.5 }", "set: { second.fail_at: 6 }")
    found = go(ablation(text))
    assert {run.run.name for run in found.failed} == {"faster,seed=1", "faster,seed=2"}
    assert "the toy failed as told" in found.failed[0].error
    assert found.decisions.decisions[0].kind == "cannot tell"
    begun = len(calls("begin"))
    go(ablation(text))
    assert len(calls("begin")) == begun + 2


@pytest.mark.slow
def test_a_process_that_is_killed_is_started_once_more() -> None:
    found = go(
        ablation(FILE.replace("set: { second.optimizer.learning_rate: 0.5 }", "set: { second.fail_at: 7 }")), jobs=1
    )
    assert "killed by SIGKILL, twice" in found.failed[0].error
    assert Counter(calls("begin")).most_common(2)[1][1] == 2


def test_what_all_share_stops_the_laboratory() -> None:
    Path("r.yaml").write_text(RECIPE.replace("train: { steps: 2 }", "train: { steps: 2, fail_at: 6 }", 1))
    with pytest.raises(CheckFailed, match="what all runs share has failed"):
        go(ablation())
    assert not [name for name in calls("begin") if name.startswith("second")]


@pytest.mark.slow
def test_hopeless_runs_are_given_up_and_not_tested() -> None:
    Path("r.yaml").write_text(RECIPE.replace("stage: train, steps: 2", "stage: train, steps: 10, pause: 0.2"))
    text = FILE.replace("curve: []", "curve: []\nprune: { at: 0.3, behind: 0.05 }").replace("0.0001", "0.00001")
    Path("r.yaml").write_text(
        Path("r.yaml").read_text().replace("steps: 10", "steps: 10, optimizer: { learning_rate: 0.4 }")
    )
    made = ablation(text)
    found = go(made, jobs=1)
    assert [run.run.name for run in found.runs if run.status == "pruned"] == ["slower,seed=1", "slower,seed=2"]
    assert "behind the baseline at step" in next(run.error for run in found.runs if run.status == "pruned")
    [_, slower] = found.decisions.decisions
    assert slower.kind == "pruned" and not slower.differences and found.decisions.tests == 1
    begun = len(calls("begin"))
    go(made, jobs=1)
    assert len(calls("begin")) == begun  # given up for good


def test_the_budget_of_time_is_a_limit_over_all_calls() -> None:
    Path("r.yaml").write_text(RECIPE.replace("stage: train, steps: 2", "stage: train, steps: 1000, pause: 0.1"))
    began = time.monotonic()
    found = go(ablation(), budget=Budget(seconds=4.0))
    assert time.monotonic() - began < DEADLINE
    assert not [name for name in calls("end") if name.startswith("second")]
    assert {run.status for run in found.runs} == {"not run"}
    assert read_state(RUNS / "small/ablations/a").seconds >= 4.0
    begun = len(calls("begin"))
    go(ablation(), budget=Budget(seconds=4.0))
    assert len(calls("begin")) == begun


@pytest.mark.slow
def test_flops_that_are_not_known_cannot_be_limited() -> None:
    assert go(ablation(), budget=Budget(flops=1e9)).complete  # toys train nothing: they have none
    with pytest.raises(RecipeError, match="an ablation"):
        plan_ablation(Path("r.yaml"), TABLE)
