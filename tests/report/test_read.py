"""Reading: the whole run arrives, and no damage to its files stops the report."""

from __future__ import annotations

import json
import shutil
from datetime import datetime
from pathlib import Path

import pytest

from ingot.report.build import build, contents
from ingot.report.read import read_run
from ingot.report.records import RunRecord, StageRecord
from ingot.workspace.errors import ArtifactError
from tests.slow import slow

from .example_documents import HOSTILE, kept_table
from .run_files import TRAINED, entries, folder_of, rows_of, value_of


def stage(run: RunRecord, name: str) -> StageRecord:
    return next(each for each in run.stages if each.name == name)


@pytest.fixture
def copy(real_run: Path, tmp_path: Path) -> Path:
    """A run of one's own to break; checkpoints, shards and intermediate results are left out."""
    left = shutil.ignore_patterns("checkpoint", "steps", "reference", "answers", "shards", "curation")
    return Path(shutil.copytree(real_run, tmp_path / "copy", ignore=left))


def test_a_whole_run_is_read_without_complaint(real_run: Path) -> None:
    run = read_run(real_run)
    assert run.problems == []
    description = json.loads((real_run / "run.json").read_text(encoding="utf-8"))
    assert [each.name for each in run.stages] == [entry["name"] for entry in description["stages"]]
    assert (run.seed, run.recipe, run.version) == (1, "quickstart.yaml", description["ingot"])
    assert run.date == datetime.fromisoformat(description["started"]).timestamp()
    for entry in description["stages"]:
        found = stage(run, entry["name"])
        assert (found.kind, found.status, found.summary) == (entry["kind"], "done", entry["summary"])
        assert found.seconds == entry["seconds"] and found.missing == []
        written = (real_run / entry["folder"] / "recipe.yaml").read_text(encoding="utf-8")
        assert found.config == written.replace(f"{real_run}/", ""), "paths are named relative to the run"
    assert stage(run, "distill").inputs == {"checkpoint": ["sft"], "teacher": ["rl"]}
    assert stage(run, "verdict").inputs["scores"][0] == "eval-pretrain"
    folder = folder_of(real_run, "pretrain")
    assert stage(run, "pretrain").bytes == sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def test_every_row_of_curation_is_read(real_run: Path) -> None:
    """Hostile texts, a torn line and bytes that are no UTF-8 went through the real steps."""
    found = stage(read_run(real_run), "curate")
    for name, records in (
        ("removed", found.removed),
        ("rewritten", found.rewritten),
        ("problems", found.read_problems),
    ):
        rows = rows_of(real_run, "curate", f"documents/{name}.jsonl")
        assert rows and len(records) == len(rows)
        for record, row in zip(records, rows, strict=True):
            read = record.model_dump(mode="json", exclude_unset=True)
            assert read == {key: value for key, value in row.items() if key in read}
            assert set(type(record).model_fields) & set(row) == set(read)
    funnel = value_of(real_run, "curate", "documents/funnel.json")
    assert [step.model_dump(exclude_unset=True) for step in found.funnel] == funnel
    assert {problem.rule for problem in found.read_problems} >= {"lone surrogate", "not JSON", "not UTF-8"}
    assert HOSTILE[1] in [document.text for document in found.removed]
    evals = value_of(real_run, "curate", "documents/decontaminate.json")
    assert found.decontaminations["decontaminate"].texts == evals["texts"] != {}
    banding = value_of(real_run, "curate", "documents/near_dedup.json")
    assert found.bandings["near_dedup"].model_dump() == banding and sum(banding["similarities"])
    assert found.kept and len(found.kept) == min(16, found.funnel[-1].documents_out)


def test_every_row_of_training_and_measuring_is_read(real_run: Path) -> None:
    run = read_run(real_run)
    assert stage(run, "tokenizer").tokenizer == value_of(real_run, "tokenizer", "tokenizer/statistics.json")
    for name in TRAINED:
        assert stage(run, name).metrics == rows_of(real_run, name, "metrics.jsonl") != []
        found, folder = stage(run, f"eval-{name}"), folder_of(real_run, f"eval-{name}")
        scores = json.loads((folder / "scores/scores.json").read_text(encoding="utf-8"))
        assert {metric: score.model_dump() for metric, score in found.scores.items()} == scores
        samples = rows_of(real_run, f"eval-{name}", "scores/samples.jsonl")
        assert [each.model_dump() for each in found.generations] == samples != []
        assert found.units == json.loads((folder / "scores/tasks.json").read_text(encoding="utf-8")) != {}
    for name in ("rl", "distill"):
        rollouts = rows_of(real_run, name, "trajectories.jsonl")
        assert [each.model_dump() for each in stage(run, name).rollouts] == rollouts != []
    claims = value_of(real_run, "verdict", "verdict/verdict.json")["claims"]
    assert [claim.model_dump() for claim in stage(run, "verdict").claims] == claims
    assert all(claim["held"] for claim in claims)


def test_a_run_with_a_failed_claim_is_read(finished_run: Path) -> None:
    run = read_run(finished_run)
    assert run.problems == [] and not any(each.missing for each in run.stages)
    assert stage(run, "verdict").status == "failed"
    assert [claim.held for claim in stage(run, "verdict").claims] == [True, True, True, False]


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
    "documents/near_dedup.json",
    "documents/part-00000.parquet",
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


@pytest.mark.parametrize(
    "damage", [damage if damage in ("torn", "object", "deep") else slow(damage) for damage in DAMAGES]
)
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
    (folder_of(copy, "rl") / "trajectories.jsonl").unlink()
    (folder_of(copy, "curate") / "documents/funnel.json").unlink()
    shutil.rmtree(folder_of(copy, "distill"))
    named = json.loads((copy / "run.json").read_text(encoding="utf-8"))
    next(each for each in named["stages"] if each["name"] == "prefer")["kind"] = "reward"
    (copy / "run.json").write_text(json.dumps(named), encoding="utf-8")
    (folder_of(copy, "prefer") / "metrics.jsonl").unlink()
    run = read_run(copy)
    assert stage(run, "prefer").missing == ["metrics.jsonl"]
    assert stage(run, "rl").missing == ["trajectories.jsonl"]
    assert stage(run, "curate").missing == ["documents/funnel.json"]
    assert any("stage distill: its folder" in problem for problem in run.problems)


def test_rows_of_another_format_are_counted_and_explained(copy: Path) -> None:
    path = folder_of(copy, "curate") / "documents/removed.jsonl"
    good = path.read_text(encoding="utf-8").split("\n")[0]
    path.write_text(good + '\n{"id": 3, "step": "x"}\n{"text": "no id"}\n', encoding="utf-8")
    run = read_run(copy)
    assert len(stage(run, "curate").removed) == 1
    (problem,) = run.problems
    assert problem.startswith(f"{path.relative_to(copy)}: skipped 2 rows of another format (row 2: id: ")


def test_without_run_json_the_folders_tell_the_stages(copy: Path) -> None:
    names = {entry["name"] for entry in entries(copy)}
    (folder_of(copy, "verdict") / "DONE").unlink()
    (copy / "run.json").unlink()
    run = read_run(copy)
    assert {each.name for each in run.stages} == names
    assert stage(run, "eval-sft").kind == "eval" and stage(run, "eval-sft").status == "done"
    assert stage(run, "verdict").status == "unknown"  # it left no DONE
    assert any("run.json" in problem for problem in run.problems)
    found = contents(run)["evaluations"]
    assert {each["name"] for each in found["checkpoints"]} == set(TRAINED)


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
