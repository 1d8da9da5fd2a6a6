"""Reading: the whole run arrives, and no damage to its files stops the report."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ingot.report.build import build, contents
from ingot.report.read import read_run
from ingot.report.records import RunRecord, StageRecord
from ingot.workspace.errors import ArtifactError

from .example_documents import BANDING, DECONTAMINATION, STATISTICS, funnel, kept_table, problems, rewritten
from .example_run import FOLDERS
from .example_scores import scores


def stage(run: RunRecord, name: str) -> StageRecord:
    return next(each for each in run.stages if each.name == name)


@pytest.fixture
def copy(finished_run: Path, tmp_path: Path) -> Path:
    """A run of one's own to break."""
    return Path(shutil.copytree(finished_run, tmp_path / "copy"))


def test_a_whole_run_is_read_without_complaint(finished_run: Path) -> None:
    run = read_run(finished_run)
    assert run.problems == []
    assert [each.name for each in run.stages] == list(FOLDERS)
    assert (run.seed, run.recipe, run.version) == (1, "quickstart.yaml", "0.1.0")
    assert run.date == 1_794_731_400  # 2026-11-15T08:30:00+00:00, by `date -d`
    assert [step.model_dump() for step in stage(run, "curate").funnel] == funnel()
    assert [each.model_dump() for each in stage(run, "curate").rewritten] == rewritten()
    assert [each.model_dump() for each in stage(run, "curate").read_problems] == problems()
    assert stage(run, "curate").bandings["near_duplicates"].model_dump() == BANDING
    assert stage(run, "curate").decontaminations["decontaminate"].texts == DECONTAMINATION["texts"]
    assert stage(run, "tokenizer").tokenizer == STATISTICS
    assert {name: score.model_dump() for name, score in stage(run, "eval-rl").scores.items()} == scores("rl")
    assert stage(run, "verdict").inputs["scores"][0] == "eval-pretrain"
    assert stage(run, "verdict").status == "failed" and len(stage(run, "verdict").claims) == 4
    assert not any(each.missing for each in run.stages)
    folder = finished_run / FOLDERS["pretrain"]
    assert stage(run, "pretrain").bytes == sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def test_kept_samples_stand_at_equal_distances_over_all_parts(finished_run: Path) -> None:
    """16 of 40 documents in two parts and six row groups: the middles of 16 equal stretches."""
    kept = stage(read_run(finished_run), "curate").kept
    assert [sample["id"] for sample in kept] == [f"kept-{int((index + 0.5) * 40 / 16)}" for index in range(16)]
    table = kept_table().to_pylist()
    for sample in kept:
        document = table[int(sample["id"].removeprefix("kept-"))]
        assert document["text"].startswith(sample["text"]) and sample["characters"] == len(document["text"])
        assert ("language" in sample["columns"]) == (document["language"] is not None)
        assert sample["columns"]["quality"] == document["quality"]
        assert sample["columns"]["scores"] == str(document["scores"])


def test_a_torn_line_loses_only_itself(running_run: Path) -> None:
    run = read_run(running_run)
    assert stage(run, "prefer").status == "running"
    assert len(stage(run, "prefer").metrics) == 60
    assert any("metrics.jsonl: skipped 1 unreadable line (line 61)" in problem for problem in run.problems)
    assert stage(run, "verdict").folder is None


FILES = (
    "documents/funnel.json",
    "documents/removed.jsonl",
    "documents/rewritten.jsonl",
    "documents/problems.jsonl",
    "documents/decontaminate.json",
    "documents/near_duplicates.json",
    "documents/part-00001.parquet",
    "tokenizer/statistics.json",
    "scores/scores.json",
    "scores/samples.jsonl",
    "scores/tasks.json",
    "metrics.jsonl",
    "trajectories.jsonl",
    "verdict/verdict.json",
    "recipe.yaml",
    "DONE",
)
DAMAGES = {
    "gone": None,
    "empty": b"",
    "torn": b'{"step": 1, "val',
    "binary": b"\xff\xfe\x00\x01" * 50,
    "list": b"[1, [2], null]",
    "scalar": b"3\n",
    "null": b"null",
    "object": b'{"claims": {"x": 1}, "step": [], "seconds": "long", "summary": 4, "nodes": 7}',
    "deep": b"[" * 100_000,
    "not_finite": b'{"step": NaN, "value": Infinity, "loss": -Infinity, "seconds": NaN}',
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_any_damage_to_any_file_still_gives_a_report(copy: Path, damage: str) -> None:
    """Each file of the run in turn is damaged in every stage that has it."""
    for path in copy.glob("**/*.jsonl"):  # the first lines are enough
        path.write_text("\n".join(path.read_text(encoding="utf-8").split("\n")[:4]), encoding="utf-8")
    for name in FILES:
        hurt = list(copy.glob(f"*/{name}"))
        originals = {path: path.read_bytes() for path in hurt}
        assert hurt, name
        for path in hurt:
            path.unlink()
            if (content := DAMAGES[damage]) is not None:
                path.write_bytes(content)
        page = build(copy, copy / "damaged.html").read_text(encoding="utf-8")
        assert page.rstrip().endswith("</html>")
        for path, content in originals.items():
            path.write_bytes(content)


def test_what_is_missing_is_named(copy: Path) -> None:
    (copy / FOLDERS["rl"] / "trajectories.jsonl").unlink()
    (copy / FOLDERS["curate"] / "documents/funnel.json").unlink()
    shutil.rmtree(copy / FOLDERS["distill"])
    run = read_run(copy)
    assert stage(run, "rl").missing == ["trajectories.jsonl"]
    assert stage(run, "curate").missing == ["documents/funnel.json"]
    assert any("stage distill: its folder" in problem for problem in run.problems)


def test_rows_of_another_format_are_counted_and_explained(copy: Path) -> None:
    path = copy / FOLDERS["curate"] / "documents/removed.jsonl"
    good = path.read_text(encoding="utf-8").split("\n")[0]
    path.write_text(good + '\n{"id": 3, "step": "x"}\n{"text": "no id"}\n', encoding="utf-8")
    run = read_run(copy)
    assert len(stage(run, "curate").removed) == 1
    (problem,) = run.problems
    assert problem.startswith(
        f"{FOLDERS['curate']}/documents/removed.jsonl: skipped 2 rows of another format (row 2: id: "
    )


def test_without_run_json_the_folders_tell_the_stages(copy: Path) -> None:
    (copy / "run.json").unlink()
    run = read_run(copy)
    assert {each.name for each in run.stages} == set(FOLDERS)
    assert stage(run, "eval-sft").kind == "eval" and stage(run, "eval-sft").status == "done"
    assert stage(run, "verdict").status == "unknown"  # it left no DONE
    assert any("run.json" in problem for problem in run.problems)
    found = contents(run)["evaluations"]
    assert {each["name"] for each in found["checkpoints"]} == {"pretrain", "extend", "sft", "prefer", "rl", "distill"}


def test_an_absolute_folder_that_moved_with_its_run_is_found(copy: Path) -> None:
    description = json.loads((copy / "run.json").read_text())
    for entry in description["stages"]:
        entry["folder"] = f"/elsewhere/runs/{entry['folder']}"
    (copy / "run.json").write_text(json.dumps(description))
    assert read_run(copy).problems == []


def test_a_path_that_is_no_run_is_an_error_with_a_fix(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(ArtifactError, match=r"neither run\.json nor stage folders") as caught:
            build(place)
        assert "fix:" in str(caught.value)
    assert list(tmp_path.iterdir()) == []
