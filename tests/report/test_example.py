"""The runs that tests write by hand have the format of one that real stages wrote: the same files, the same keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .run_files import TRAINED, entries, folder_of, rows_of, value_of

STAGES = ["curate", "tokenizer", "tokenize", *(f"{name}" for name in TRAINED), *(f"eval-{name}" for name in TRAINED)]
NAMES = {"near_duplicates.json": "near_dedup.json", "part-00001.parquet": "part-00000.parquet"}
"""Files that the hand-written run calls otherwise: a step has the name that its recipe gives it, and there are two parts."""


def keys(rows: list[Any]) -> set[str]:
    return {key for row in rows for key in row}


def scores_of(run: Path, stage: str) -> list[dict[str, Any]]:
    return list(value_of(run, f"eval-{stage}", "scores/scores.json").values())


def test_the_stages_and_their_inputs(real_run: Path, finished_run: Path) -> None:
    real, written = entries(real_run), entries(finished_run)
    assert [entry["name"] for entry in written] == [entry["name"] for entry in real]
    for ours, theirs in zip(written, real, strict=True):
        assert set(ours) - {"error"} == set(theirs) - {"error"}
        assert (ours["kind"], set(ours["inputs"])) == (theirs["kind"], set(theirs["inputs"]))
    assert keys([json.loads((finished_run / "run.json").read_text())]) == keys(
        [json.loads((real_run / "run.json").read_text())]
    )
    assert keys([value_of(finished_run, "sft", "DONE")]) == keys([value_of(real_run, "sft", "DONE")])


@pytest.mark.parametrize("stage", [*STAGES, "verdict"])
def test_no_file_is_made_up(stage: str, real_run: Path, finished_run: Path) -> None:
    ours, theirs = folder_of(finished_run, stage), folder_of(real_run, stage)
    files = [path.relative_to(ours) for path in ours.rglob("*") if path.is_file() and path.parts[-3] != "history"]
    assert (
        files
        and [file for file in files if not (theirs / file.parent / NAMES.get(file.name, file.name)).exists()] == []
    )


@pytest.mark.parametrize("file", ["funnel.json", "removed.jsonl", "rewritten.jsonl", "problems.jsonl"])
def test_curation(file: str, real_run: Path, finished_run: Path) -> None:
    read = value_of if file.endswith(".json") else rows_of
    assert keys(read(finished_run, "curate", f"documents/{file}")) == keys(
        read(real_run, "curate", f"documents/{file}")
    )


def test_reports_of_steps_and_of_the_tokenizer(real_run: Path, finished_run: Path) -> None:
    ours = value_of(finished_run, "curate", "documents/decontaminate.json")
    theirs = value_of(real_run, "curate", "documents/decontaminate.json")
    assert set(ours) == set(theirs)
    assert keys(list(ours["sets"].values())) == keys(list(theirs["sets"].values()))
    assert set(value_of(finished_run, "curate", "documents/near_duplicates.json")) == set(
        value_of(real_run, "curate", "documents/near_dedup.json")
    )
    ours = value_of(finished_run, "tokenizer", "tokenizer/statistics.json")
    theirs = value_of(real_run, "tokenizer", "tokenizer/statistics.json")
    assert set(ours) == set(theirs)
    assert keys(list(ours["held_out"].values())) == keys(list(theirs["held_out"].values()))


@pytest.mark.parametrize("stage", TRAINED)
def test_training_and_measuring(stage: str, real_run: Path, finished_run: Path) -> None:
    assert keys(rows_of(finished_run, stage, "metrics.jsonl")) <= keys(rows_of(real_run, stage, "metrics.jsonl"))
    for file in ("scores/scores.json", "scores/tasks.json"):
        ours, theirs = (value_of(run, f"eval-{stage}", file) for run in (finished_run, real_run))
        assert set(ours) <= set(theirs)
        if file == "scores/scores.json":
            assert keys(list(ours.values())) == keys(list(theirs.values()))
    for earlier in (folder_of(finished_run, f"eval-{stage}") / "history").glob("step-*/scores.json"):
        assert keys(list(json.loads(earlier.read_text()).values())) == keys(scores_of(real_run, stage))
    samples = (keys(rows_of(run, f"eval-{stage}", "scores/samples.jsonl")) for run in (finished_run, real_run))
    assert next(samples) == next(samples)


@pytest.mark.parametrize("stage", ["rl", "distill"])
def test_rollouts(stage: str, real_run: Path, finished_run: Path) -> None:
    ours, theirs = (rows_of(run, stage, "trajectories.jsonl") for run in (finished_run, real_run))
    assert keys(ours) == keys(theirs)
    assert keys([node for row in ours for node in row["nodes"]]) == keys(
        [node for row in theirs for node in row["nodes"]]
    )
    assert {row["nodes"][0]["role"] for row in ours} == {row["nodes"][0]["role"] for row in theirs}


def test_verdict(real_run: Path, finished_run: Path) -> None:
    """The last claim of the hand-written run has fields that nobody knows: the page shows them all the same."""
    ours, theirs = (value_of(run, "verdict", "verdict/verdict.json") for run in (finished_run, real_run))
    assert set(ours) == set(theirs) and type(ours["held"]) is type(theirs["held"])
    assert (ours["held"], ours["failed"]) == (3, 1)
    assert keys(ours["claims"][:-1]) == keys(theirs["claims"])
