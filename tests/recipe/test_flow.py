"""Running: what is skipped, resumed, redone; what the records say."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ingot.post import sampled_answers
from ingot.post.resumable import Resumable
from ingot.recipe.flow import RunResult, run_recipe
from ingot.recipe.load import load_recipe
from ingot.workspace.errors import ArtifactError, CheckFailed, Interrupted, RecipeError, RunLocked
from ingot.workspace.files import read_json
from ingot.workspace.interrupt import StopSignal
from ingot.workspace.lock import lock_folder
from ingot.workspace.progress import Progress
from tests.post.making import SUMS, checkpoint_of, tiny_model, tiny_tokenizer

from . import toy
from .conftest import Load, Write

TEXT = """
name: small
seed: 3
stages:
  make: {text: a}
  train: {steps: 4}
  second: {stage: train}
  score: {after: each}
  judge: {claims: [better]}
"""
ALL = ["make@0", "train@0", "score-train", "second@0", "score-second", "verdict"]
RUNS = Path("runs")


def go(load: Load, *changes: str, **options: Any) -> tuple[list[str], RunResult]:
    """Run the recipe with changes; the stages that really ran, and the result."""
    toy.CALLS.clear()
    result = run_recipe(load(TEXT, changes), RUNS, table=toy.TABLE, **options)
    return list(toy.CALLS), result


def statuses(result: RunResult) -> list[str]:
    return [stage.status for stage in result.stages]


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file() and path.name != ".lock"
    }


def test_runs_everything_once(load: Load) -> None:
    calls, result = go(load)
    assert calls == ALL
    assert statuses(result) == ["done"] * 6
    assert result.stages[1].summary["steps"] == 4
    assert result.checkpoint == result.stages[3].folder
    before = tree(RUNS)
    calls, result = go(load)
    assert calls == []
    assert statuses(result) == ["reused"] * 6
    assert result.stages[1].summary["steps"] == 4
    after = tree(RUNS)
    assert {path for path in before if before[path] != after[path]} == {"runs/small/run.json"}


def test_redoes_exactly_what_changed(load: Load) -> None:
    go(load)
    calls, result = go(load, "second.steps=7")
    assert calls == ["second@0", "score-second", "verdict"]
    assert statuses(result) == ["reused", "reused", "reused", "done", "done", "done"]
    assert len(result.unused()) == 3
    assert go(load)[0] == []  # the old folders are still there
    assert go(load, "judge.claims=[a, b]")[0] == ["verdict"]
    assert go(load, "make.text=b")[0] == ALL


def test_layout_and_records(load: Load) -> None:
    _, result = go(load)
    train = result.stages[1].folder
    assert train.parent == Path("runs/small")
    assert train.name.startswith("train-")
    done = read_json(train / "DONE")
    assert (done["name"], done["kind"], f"train-{done['hash']}") == ("train", "train", train.name)
    assert done["inputs"] == {"documents": result.stages[0].folder.name.removeprefix("make-")}
    assert done["summary"] == result.stages[1].summary
    assert done["seconds"] >= 0
    assert (train / "metrics.jsonl").exists()
    recipe = (train / "recipe.yaml").read_text()
    assert "stage: train\nseed: 3\ninputs:\n  documents: runs/small/make-" in recipe
    run = read_json(RUNS / "small" / "run.json")
    assert (run["name"], run["seed"], run["recipe"]) == ("small", 3, "recipe.yaml")
    assert [stage["name"] for stage in run["stages"]] == [stage.name for stage in result.stages]
    last = run["stages"][-1]
    assert last["inputs"] == {"scores": {"train": "score-train", "second": "score-second"}}
    assert (last["status"], last["folder"], last["summary"]["stages"]) == (
        "done",
        result.stages[-1].folder.name,
        "train, second",
    )
    assert not list(RUNS.rglob("*.partial"))


def test_to(load: Load) -> None:
    calls, result = go(load, to_stage="train")
    assert calls == ["make@0", "train@0"]
    assert statuses(result) == ["done", "done", "pending", "pending", "pending", "pending"]
    assert go(load, to_stage="score")[0] == ["score-train", "second@0", "score-second"]  # the last of its stages
    assert go(load)[0] == ["verdict"]


def test_from(load: Load) -> None:
    go(load)
    calls, result = go(load, from_stage="second")
    assert calls == ["second@0", "score-second", "verdict"]
    assert statuses(result) == ["reused", "reused", "reused", "done", "done", "done"]
    calls, result = go(load, from_stage="second", to_stage="second")
    assert calls == ["second@0"]
    assert statuses(result)[-2:] == ["pending", "pending"]  # what followed from the old result is gone, too
    assert go(load)[0] == ["score-second", "verdict"]


def test_from_needs_what_comes_before(load: Load) -> None:
    go(load, to_stage="make")
    message = (
        "^recipe.yaml: stage second needs the result of train, which is not finished\n"
        "  fix: run it first: ingot run recipe.yaml --to train$"
    )
    before = tree(RUNS)
    with pytest.raises(ArtifactError, match=message):
        go(load, from_stage="second")
    assert tree(RUNS) == before


def test_bad_stage_names(load: Load) -> None:
    with pytest.raises(RecipeError, match=r"^--from tain: no stage is named tain\n  fix: did you mean train\?$"):
        go(load, from_stage="tain")
    with pytest.raises(RecipeError, match=r"^recipe.yaml: --to make comes before --from second$"):
        go(load, from_stage="second", to_stage="make")
    assert not RUNS.exists()


def test_only(load: Load) -> None:
    with pytest.raises(ArtifactError, match="stage second needs the result of make"):
        go(load, only={"second"})
    go(load, to_stage="train")
    assert go(load, only={"second"})[0] == ["second@0"]


def test_dry_run_writes_nothing(load: Load) -> None:
    calls, result = go(load, dry_run=True)
    assert (calls, statuses(result), RUNS.exists()) == ([], ["pending"] * 6, False)
    go(load)
    before = tree(RUNS)
    assert statuses(go(load, dry_run=True)[1]) == ["reused"] * 6
    assert statuses(go(load, dry_run=True, from_stage="second")[1]) == ["reused"] * 3 + ["pending"] * 3
    assert tree(RUNS) == before


@pytest.mark.parametrize("content", [None, "", "{", "[]", '{"hash": "x"}', "null"])
def test_a_damaged_done_is_not_finished(load: Load, content: str | None) -> None:
    _, result = go(load)
    done = result.stages[1].folder / "DONE"
    if content is None:
        done.unlink()
    else:
        done.write_text(content)
    assert go(load)[0] == ["train@4"]  # resumed from its own state, which was complete


def test_a_missing_artifact_is_not_finished(load: Load) -> None:
    _, result = go(load)
    shutil.rmtree(result.stages[1].folder / "checkpoint")
    assert go(load)[0] == ["train@4"]


def test_a_folder_under_a_wrong_name_is_not_reused(load: Load) -> None:
    _, result = go(load)
    wrong = result.stages[1].folder
    changed = run_recipe(load(TEXT, ["train.steps=5"]), RUNS, table=toy.TABLE, dry_run=True).stages[1].folder
    shutil.copytree(wrong, changed)
    assert "train@4" in go(load, "train.steps=5")[0]


def test_failure_is_recorded_and_resumed(load: Load) -> None:
    with pytest.raises(CheckFailed, match="the toy failed as told"):
        go(load, "train.fail_at=2")
    run = read_json(RUNS / "small" / "run.json")
    assert [stage["status"] for stage in run["stages"]] == ["done", "failed"] + ["pending"] * 4
    assert run["stages"][1]["error"].startswith("CheckFailed: ")
    assert "the toy failed as told" in run["stages"][1]["error"]
    with pytest.raises(CheckFailed):
        go(load, "train.fail_at=2")
    assert toy.CALLS == ["train@2"]


def test_a_stage_without_its_artifact_or_with_a_bad_summary(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = load("name: broken\nstages: {make: }\n")
    monkeypatch.setattr(toy, "make", lambda *_: {})
    with pytest.raises(CheckFailed, match="the make stage make did not write its documents"):
        run_recipe(recipe, RUNS, table=toy.TABLE)
    monkeypatch.setattr(toy, "make", lambda *_: {"loss": float("nan")})
    with pytest.raises(CheckFailed, match="returned a summary that is not plain JSON"):
        run_recipe(recipe, RUNS, table=toy.TABLE)
    monkeypatch.setattr(toy, "make", lambda *_: None)
    with pytest.raises(CheckFailed, match="returned a NoneType, not a summary"):
        run_recipe(recipe, RUNS, table=toy.TABLE)
    assert not list(RUNS.rglob("DONE"))


def test_what_a_stage_warns_of_is_its_last_line(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    made = toy.make
    monkeypatch.setattr(
        toy, "make", lambda config, inputs, folder: made(config, inputs, folder) | {"warning": "it fell"}
    )
    progress = StopAt(StopSignal(), 99)
    run_recipe(load("name: warned\nstages: {make: }\n"), RUNS, table=toy.TABLE, progress=progress)
    assert progress.said[-2].startswith("1/1 make: done in ") and progress.said[-1] == "1/1 make: warning: it fell"


class StopAt(Progress):
    """Asks for a stop in the middle of a stage, as Ctrl-C would."""

    def __init__(self, stop: StopSignal, value: int) -> None:
        self.stop, self.value, self.said = stop, value, list[str]()
        self.name = ""

    def stage(self, name: str, number: int, count: int) -> None:
        self.name = f"{number}/{count} {name}"

    def advance(self, done: int, **values: Any) -> None:
        if self.name.endswith("second") and done == self.value:
            self.stop.request()

    def say(self, text: str) -> None:
        self.said.append(f"{self.name}: {text}")


def test_a_stop_in_the_middle_is_resumed_and_gives_the_same(load: Load) -> None:
    _, whole = go(load)
    reference = {stage.name: tree(stage.folder / "checkpoint") for stage in whole.stages}
    shutil.rmtree(RUNS)
    stop = StopSignal()
    with pytest.raises(Interrupted, match=r"^stopped in stage second; its work is saved in runs/small/second-\w+$"):
        go(load, stop=stop, progress=StopAt(stop, 2))
    run = read_json(RUNS / "small" / "run.json")
    assert [stage["status"] for stage in run["stages"]] == ["done", "done", "done", "pending", "pending", "pending"]
    spent = run["stages"][3]["seconds"]
    progress = StopAt(StopSignal(), 99)
    calls, result = go(load, progress=progress)
    assert calls == ["second@2", "score-second", "verdict"]
    assert {stage.name: tree(stage.folder / "checkpoint") for stage in result.stages} == reference
    assert result.stages[3].seconds is not None
    assert result.stages[3].seconds > spent > 0
    assert progress.said[0] == "1/6 make: finished earlier, reused"
    assert progress.said[3].startswith("4/6 second: done in 0.")


class StopWhen(Progress):
    """Asks for a stop when a stage begins to sample, or when so many steps are done."""

    def __init__(self, stop: StopSignal, steps: int | None) -> None:
        self.stop, self.steps = stop, steps

    def start(self, total: int, unit: str = "step", done: int = 0) -> None:
        if self.steps is None:
            self.stop.request()

    def say(self, text: str) -> None:
        if self.steps is None and text.startswith("sampling"):
            self.stop.request()

    def advance(self, done: int, **values: Any) -> None:
        if done == self.steps:
            self.stop.request()


SHORT: dict[str, Any] = {
    "steps": 3,
    "sequence_length": 64,
    "tasks": SUMS.model_dump(mode="json"),
    "precision": "float32",
    "device": "cpu",
    "checkpoints": {"every": 100},
    "inputs": {"checkpoint": "base"},
}
PAIRS: dict[str, Any] = {"prompts": 4, "samples": 2, "max_new_tokens": 4, "batch_pairs": 1}
SAMPLES: dict[str, Any] = {"prompts_per_step": 4, "group": 2, "max_new_tokens": 4}


@pytest.mark.parametrize(
    ("kind", "options", "steps", "saved"),
    [
        ("prefer", PAIRS, None, False),
        ("rl", SAMPLES, None, False),
        ("rl", SAMPLES, 2, True),
    ],
)
def test_a_stop_before_anything_is_saved_says_so(
    kind: str, options: dict[str, Any], steps: int | None, saved: bool, write: Write
) -> None:
    checkpoint_of(tiny_model(tiny_tokenizer()), Path("base"))
    recipe = load_recipe(write(json.dumps({"name": "small", "stages": {kind: SHORT | options}})))
    stop = StopSignal()
    said = (
        rf"its work is saved in runs/small/{kind}-\w+"
        if saved
        else "none of its work is saved yet; it will start again"
    )
    with pytest.raises(Interrupted, match=rf"^stopped in stage {kind}; {said}$"):
        run_recipe(recipe, RUNS, stop=stop, progress=StopWhen(stop, steps))
    assert bool(list(RUNS.glob("small/*/steps/step-*"))) == saved


def test_answers_that_are_kept_are_saved_work(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    stop, put = StopSignal(), Resumable.put

    def put_and_stop(kept: Resumable[Any], run: slice, results: Sequence[Any]) -> None:
        put(kept, run, results)
        stop.request()

    monkeypatch.setattr(Resumable, "put", put_and_stop)
    monkeypatch.setattr(sampled_answers, "PIECE", 2)
    checkpoint_of(tiny_model(tiny_tokenizer()), Path("base"))
    recipe = load_recipe(write(json.dumps({"name": "small", "stages": {"prefer": SHORT | PAIRS}})))
    with pytest.raises(Interrupted, match=r"^stopped in stage prefer; its work is saved in runs/small/prefer-\w+$"):
        run_recipe(recipe, RUNS, stop=stop)


def test_a_stop_in_a_stage_that_never_saves_parts_says_so(load: Load) -> None:
    table, stop = toy.changed("train", resumes=False), StopSignal()
    with pytest.raises(
        Interrupted, match=r"^stopped in stage second; none of its work is saved yet; it will start again$"
    ):
        run_recipe(load(TEXT), RUNS, table=table, stop=stop, progress=StopAt(stop, 2))


def test_a_stop_between_stages(load: Load) -> None:
    stop = StopSignal()
    with pytest.raises(Interrupted, match=r"^stopped before stage score-second$"):
        go(load, stop=stop, progress=StopAt(stop, 3))  # comes with the last step: the stage still ends
    assert [stage["status"] for stage in read_json(RUNS / "small" / "run.json")["stages"]].count("done") == 4


def test_what_a_killed_process_was_discarding_is_swept(load: Load) -> None:
    leftover = RUNS / "small" / "train-abc.partial"
    leftover.mkdir(parents=True)
    (leftover / "DONE").write_text("{}")
    go(load, to_stage="make")
    assert not leftover.exists()


def test_a_second_run_is_refused_while_the_first_works(load: Load) -> None:
    with lock_folder(RUNS / "small", "ingot run first"), pytest.raises(RunLocked, match="ingot run first"):
        go(load)
    assert toy.CALLS == []
    assert len(go(load)[0]) == 6


def test_report_is_made_at_the_end(load: Load) -> None:
    def finish(folder: Path) -> Path:
        run = json.loads((folder / "run.json").read_text())
        (folder / "report.txt").write_text(" ".join(stage["status"] for stage in run["stages"]))
        return folder / "report.txt"

    _, result = go(load, finish=finish)
    assert result.report == RUNS / "small" / "report.txt"
    assert result.report.read_text() == "done done done done done done"
