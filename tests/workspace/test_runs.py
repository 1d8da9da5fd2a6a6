"""A stage by its name, a run by its last checkpoint; what is neither comes back as it was given."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ingot.workspace.runs import find_checkpoint, find_stage


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """curate, pretrain and sft are finished, rl is not; an older pretrain is in the folder too."""
    folder = tmp_path / "runs" / "mine"
    names = {"curate": "curate-1", "pretrain": "pretrain-2", "sft": "sft-3", "rl": "rl-4"}
    for name in (*names.values(), "pretrain-0"):
        (folder / name / ("documents" if name == "curate-1" else "checkpoint")).mkdir(parents=True)
        if name != "rl-4":
            (folder / name / "DONE").write_text("{}")
    stages = [{"name": name, "folder": place} for name, place in names.items()]
    (folder / "run.json").write_text(json.dumps({"name": "mine", "stages": stages}))
    return folder


def test_a_stage_by_its_name_is_that_of_the_last_run(run: Path) -> None:
    assert find_stage(run / "pretrain") == find_checkpoint(run / "pretrain") == run / "pretrain-2"
    assert find_stage(run / "curate") == run / "curate-1"
    assert find_stage(run / "pretrain-0") == run / "pretrain-0"


def test_a_run_is_its_last_finished_checkpoint(run: Path) -> None:
    assert find_checkpoint(run) == run / "sft-3"
    assert find_stage(run) == run


def test_what_is_no_finished_stage_stays_as_it_is(run: Path, tmp_path: Path) -> None:
    for path in (run / "rl", run / "verdict", tmp_path / "nowhere" / "sft", tmp_path):
        assert find_stage(path) == find_checkpoint(path) == path


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "[" * 100_000, '{"stages": 3}', '{"stages": [{"name": "sft"}]}', '{"stages": ["sft"]}']
)
def test_a_damaged_record_names_nothing(run: Path, text: str) -> None:
    (run / "run.json").write_text(text)
    assert find_stage(run / "sft") == run / "sft"
    assert find_checkpoint(run) == run
