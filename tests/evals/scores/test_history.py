"""Evaluations in the training loop: a real run whose kept checkpoints are measured and one chosen; one that is followed."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from ingot.checkpoints.checkpoint import load_model
from ingot.evals.choose import choose
from ingot.evals.config import ChooseConfig
from ingot.evals.scores.compare import compare
from ingot.evals.scores.every import final_step, follow_steps, measure_steps
from ingot.evals.scores.follow import end_if_no_better
from ingot.evals.scores.history import Measurement, read_history, save_step, signals
from ingot.evals.scores.scores import Metric, Sample, load_scores, metric_of_units
from ingot.recipe.flow import RunResult, run_recipe
from ingot.recipe.load import load_recipe
from ingot.train.loop import Trainer
from ingot.train.saving.early_end import ask_to_end, ended_at, why_end
from ingot.workspace.errors import ArtifactError, Interrupted, RecipeError
from ingot.workspace.files import read_json, write_json
from ingot.workspace.interrupt import StopSignal
from ingot.workspace.metrics import MetricsLog
from ingot.workspace.stage import DONE
from tests.evals.conftest import World

MODEL = {
    "width": 16,
    "blocks": {
        "layer": {
            "mixer": {"kind": "attention", "heads": 2, "key_value_heads": 1, "head_width": 8},
            "feed_forward": {"kind": "dense", "width": 32},
        }
    },
    "layers": "layer*1",
}
SUITE = {"suite": "bits_per_byte", "rows": 4, "sequence_length": 32, "held_out": False}


KEPT = {"every": 2, "keep_every": 4}


def recipe(world: World, folder: Path, checkpoints: dict[str, int] = KEPT, **stages: Any) -> Path:
    pretrain = {
        "steps": 12,
        "sequence_length": 32,
        "batch_tokens": 128,
        "phases": [{"until": 1.0, "weights": {"all": 1.0}}],
        "model": MODEL,
        "checkpoints": checkpoints,
        "optimizer": {"lr": 0.02},
        "log_every": 2,
        "device": "cpu",
    }
    content = {
        "name": "loop",
        "inputs": {"shards": str(world.shards), "tokenizer": str(world.checkpoint / "tokenizer")},
        "stages": {"pretrain": pretrain, **stages},
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def result(world: World, tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    folder = tmp_path_factory.mktemp("loop")
    stages: dict[str, Any] = {
        "eval": {"after": "pretrain", "every": 4, "suites": [SUITE], "device": "cpu"},
        "choose": {"metric": "bits_per_byte", "best": "max"},  # the worst: surely not the last step
    }
    return run_recipe(load_recipe(recipe(world, folder, **stages)), folder / "runs")


def folder_of(result: RunResult, name: str) -> Path:
    return next(stage.folder for stage in result.stages if stage.name == name)


def test_kept_checkpoints_are_measured_and_the_last_is_the_score(result: RunResult) -> None:
    evaluated = folder_of(result, "eval-pretrain")
    rows = read_history(evaluated)
    assert [row.step for row in rows] == [4, 8, 12]
    bits = [row.metrics["bits_per_byte"].estimate.value for row in rows]
    assert bits[0] > bits[1] > bits[2]  # it learns
    scores = load_scores(evaluated)
    assert scores == rows[-1].metrics and not scores["bits_per_byte"].held_out
    done = read_json(evaluated / DONE)["summary"]
    training = read_json(folder_of(result, "pretrain") / DONE)["seconds"]
    seconds = sum(row.seconds for row in rows)
    assert done["steps_measured"] == 3 and done["bits_per_byte"] == bits[2]
    assert done["share_of_compute"] == pytest.approx(seconds / (seconds + training), abs=1e-4)


def test_two_steps_are_compared_like_two_models(result: RunResult) -> None:
    history = folder_of(result, "eval-pretrain") / "history"
    comparison = compare([history / "step-0000004", history / "step-0000012"])
    assert comparison.models == ("step-0000004", "step-0000012")
    change = next(row for row in comparison.rows if row.name == "bits_per_byte").changes[0]
    assert change is not None and change.better is True and change.shared == 4 and len(change.gained) == 4


def test_the_chosen_checkpoint_is_that_step(result: RunResult) -> None:
    chosen = folder_of(result, "choose")
    assert read_json(chosen / DONE)["summary"]["step"] == 4
    trained = folder_of(result, "pretrain")
    ours, its = load_model(chosen / "checkpoint"), load_model(trained / "steps/step-0000004")
    last = load_model(trained / "checkpoint")
    for name, value in ours.state_dict().items():
        assert torch.equal(value, its.state_dict()[name])
    assert not torch.equal(ours.embedding.weight, last.embedding.weight)
    assert ours.tokenizer is not None
    assert result.checkpoint == chosen  # what `ingot chat` takes


@pytest.mark.parametrize(
    ("every", "checkpoints", "fix"),
    [
        (4, {"every": 2}, "pretrain keeps none: set its checkpoints.keep_every to 4"),
        (4, {"every": 2, "keep_every": 6}, "pretrain keeps every 6 steps: set its checkpoints.keep_every to 4"),
        (4, {"every": 3, "keep_every": 4}, "pretrain saves every 3 steps: choose a multiple of that"),
        (12, {"every": 2, "keep_every": 4}, "pretrain has 12 steps: choose fewer, or leave it out"),
    ],
)
def test_steps_that_are_not_kept_are_a_problem_of_the_recipe(
    every: int, checkpoints: dict[str, int], fix: str, world: World, tmp_path: Path
) -> None:
    path = recipe(world, tmp_path, checkpoints, eval={"after": "pretrain", "every": every, "suites": [SUITE]})
    with pytest.raises(RecipeError, match="no checkpoints of every") as caught:
        load_recipe(path)
    assert fix in str(caught.value)


def test_what_chooses_is_not_held_out_and_needs_a_history(world: World, tmp_path: Path) -> None:
    held = {**SUITE, "held_out": True}
    stages: dict[str, Any] = {
        "eval": {"after": "pretrain", "every": 4, "suites": [SUITE]},
        "choose": {"metric": "bits_per_byte"},
        "final": {"stage": "eval", "suites": [held]},
    }
    with pytest.raises(RecipeError, match="final: bits_per_byte chooses a checkpoint in choose, so it is not held out"):
        load_recipe(recipe(world, tmp_path, **stages))
    stages |= {"eval": {"after": "pretrain", "suites": [SUITE]}, "final": {"stage": "eval", "suites": [SUITE]}}
    with pytest.raises(RecipeError, match="eval-pretrain measures one checkpoint only"):
        load_recipe(recipe(world, tmp_path, **stages))


def rows(*values: float, higher: bool = True) -> list[Measurement]:
    def metric(value: float) -> Metric:
        return metric_of_units("m", {"a": value - 0.1, "b": value + 0.1}, "M", higher)

    return [Measurement(100 * number, {"m": metric(value)}, 1.0) for number, value in enumerate(values, start=1)]


def test_choices_and_early_stopping() -> None:
    scores = (0.1, 0.3, 0.29, 0.28, 0.5, 0.4)
    assert choose(rows(*scores), ChooseConfig(metric="m")).step == 500
    early = choose(rows(*scores), ChooseConfig(metric="m", patience=2))
    assert (early.step, early.ended) == (200, 400)
    assert choose(rows(*scores), ChooseConfig(metric="m", patience=3)).step == 500
    assert choose(rows(*scores, higher=False), ChooseConfig(metric="m")).step == 100
    assert (
        choose(rows(*scores), ChooseConfig(metric="m", min_improvement=0.25)).step == 500
    )  # 0.5 is better than 0.1 by more
    with pytest.raises(RecipeError, match="no step has n"):
        choose(rows(*scores), ChooseConfig(metric="n"))
    with pytest.raises(RecipeError, match="no history"):
        choose([], ChooseConfig(metric="m"))


def test_a_stage_that_is_no_better_is_asked_to_end_once(tmp_path: Path) -> None:
    rule = ChooseConfig(metric="m", patience=2)
    said: list[str] = []
    scores = (0.1, 0.3, 0.29, 0.28, 0.2)
    for known in range(1, len(scores) + 1):
        end_if_no_better(tmp_path, rows(*scores[:known]), rule, said.append)
        assert (why_end(tmp_path) is not None) == (known >= 4)
    assert why_end(tmp_path) == "m has not been better than at step 200 (0.3)"
    assert len(said) == 1 and said[0].startswith("step 400: m has not been better")


def test_training_that_is_asked_to_end_ends_with_its_next_checkpoint(
    world: World, result: RunResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends after 6 of 12 steps with the weights that the whole run had then, and later stages take it as it is."""
    evaluate = {"after": "pretrain", "every": 4, "suites": [SUITE], "device": "cpu"}
    loaded = load_recipe(recipe(world, tmp_path, {"every": 2, "keep_every": 2}, eval=evaluate))
    log = MetricsLog.append

    def append(self: MetricsLog, step: int, metrics: dict[str, Any]) -> None:
        log(self, step, metrics)
        if step == 4:  # between the checkpoints of 4 and of 6 steps
            ask_to_end(self.path.parent, "it is enough")

    monkeypatch.setattr(MetricsLog, "append", append)
    ended = run_recipe(loaded, tmp_path / "runs")
    stage = folder_of(ended, "pretrain")
    assert ended_at(stage) == final_step(stage) == 6
    assert [row["step"] for row in MetricsLog(stage / "metrics.jsonl").read()] == [0, 2, 4, 5]
    assert [row.step for row in read_history(folder_of(ended, "eval-pretrain"))] == [4, 6]
    ours = load_model(stage / "checkpoint").state_dict()
    for name, value in load_model(stage / "steps/step-0000006").state_dict().items():
        assert torch.equal(ours[name], value)
    whole = load_model(folder_of(result, "pretrain") / "steps/step-0000004").state_dict()
    for name, value in load_model(stage / "steps/step-0000004").state_dict().items():
        assert torch.equal(whole[name], value)

    (stage / DONE).unlink()  # killed after the last checkpoint was written, before the stage was done
    monkeypatch.setattr(Trainer, "_train", None)  # nothing is trained again
    again = run_recipe(loaded, tmp_path / "runs")
    assert (folder_of(again, "pretrain") / DONE).exists()


def test_histories_have_signals(tmp_path: Path) -> None:
    generator = random.Random(0)
    for step in range(100, 1000, 100):
        for name, chance in (("good", 0.25 + step / 2000), ("bad", 0.25)):
            units = {str(unit): float(generator.random() < chance) for unit in range(400)}
            metrics = [metric_of_units(name, units, name, chance=0.25)]
            save_step(tmp_path / name / "history", step, metrics, [], 2.0)
    found = {name: signals({("model", 0): read_history(tmp_path / name)})[name].kind for name in ("good", "bad")}
    assert found == {"good": "stable", "bad": "blind"}


def test_a_running_stage_is_followed_to_its_end(tmp_path: Path) -> None:
    """Checkpoints appear while they are measured; half written ones and those between are passed over."""

    def train() -> None:
        for step in (0, 50, 100, 150, 200):
            (tmp_path / f"steps/step-{step:07d}.partial").mkdir(parents=True)
            time.sleep(0.02)
            (tmp_path / f"steps/step-{step:07d}.partial").rename(tmp_path / f"steps/step-{step:07d}")
        (tmp_path / "recipe.yaml").write_text("stage: pretrain\nsteps: 300\n")
        write_json(tmp_path / DONE, {"seconds": 1.0})

    training = threading.Thread(target=train)
    training.start()
    seen = []

    def measure(path: Path) -> tuple[list[Metric], list[Sample]]:
        seen.append(path.name)
        return list(rows(0.5)[0].metrics.values()), []

    steps = follow_steps(tmp_path, 100, 30.0, StopSignal(), look_every=0.005)
    measure_steps(steps, tmp_path, tmp_path / "history", measure)
    training.join(10)
    assert seen == ["step-0000100", "step-0000200"]
    measure_steps([100, 200], tmp_path, tmp_path / "history", measure)
    assert len(seen) == 2  # what is in the history is not measured again


def test_a_follower_gives_up(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"no new checkpoint of a multiple of 100 steps in 0\.02 seconds"):
        list(follow_steps(tmp_path, 100, 0.02, StopSignal(), look_every=0.005))
    stop = StopSignal()
    stop.request()
    with pytest.raises(Interrupted):
        list(follow_steps(tmp_path, 100, 30.0, stop))
