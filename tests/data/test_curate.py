"""The whole stage on a small folder: what comes out, that it is always the same, what is computed again, how it fails."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from ingot.data.config import CurateConfig
from ingot.data.curate import curate
from ingot.data.curate import run as run_stage
from ingot.data.engine.work import Work
from ingot.workspace.errors import DataError, IngotError, Interrupted
from ingot.workspace.files import read_json, read_jsonl
from ingot.workspace.interrupt import StopSignal
from ingot.workspace.stage import StageFolder
from tests.making.stages import Listener

from .dirty import CODE, PROMPT, STORY, article, write_dirt, write_rows


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    write_dirt(folder)
    return folder


def config_for(corpus: Path, **changes: Any) -> CurateConfig:
    steps = [step.model_dump() for step in CurateConfig().steps]
    steps.insert(-1, {"step": "decontaminate", "texts": [PROMPT]})
    source = {"files": str(corpus), "name": "mine", "bad_text": "drop", "max_document_bytes": 1_000_000}
    return CurateConfig(**{"sources": [source], "steps": steps, "workers": 1, **changes})


def stage_at(path: Path, recorder: Listener | None = None, *, made: bool = False) -> StageFolder:
    path.mkdir(parents=True, exist_ok=made)
    return StageFolder(path=path, seed=1, progress=recorder or Listener())


def results(folder: StageFolder) -> dict[str, bytes]:
    """Every byte that comes out, but for the seconds of the funnel."""
    files = {
        path.relative_to(folder.path).as_posix(): path.read_bytes()
        for path in sorted(folder.path.rglob("*"))
        if path.is_file()
    }
    rows = json.loads(files.pop("documents/funnel.json"))
    files["funnel"] = json.dumps([row | {"seconds": 0} for row in rows]).encode()
    return files


def documents_of(folder: StageFolder, name: str = "documents") -> list[dict[str, Any]]:
    parts = sorted((folder.path / name).glob("part-*.parquet"))
    return [row for part in parts for row in pyarrow.parquet.read_table(part).to_pylist()]


@dataclass(frozen=True)
class Curated:
    """A finished curation."""

    corpus: Path
    folder: StageFolder
    summary: dict[str, Any]
    lines: list[str]  # what it said


@pytest.fixture(scope="module")
def curated(tmp_path_factory: pytest.TempPathFactory) -> Curated:
    """All default steps, in as many processes as there are processors."""
    place, recorder = tmp_path_factory.mktemp("curated"), Listener()
    corpus, folder = place / "corpus", stage_at(place / "stage", recorder)
    write_dirt(corpus)
    summary = run_stage(config_for(corpus, workers=None), {}, folder)
    return Curated(corpus, folder, summary, recorder.lines)


def test_what_comes_out(curated: Curated) -> None:
    stage_folder, summary = curated.folder, curated.summary
    documents = documents_of(stage_folder)
    by_id = {row["id"]: row for row in documents}
    assert len(by_id) == len(documents) == summary["documents"] == 33
    assert {name for name in by_id if "jsonl" not in name} == {
        "mine:story.txt",
        "mine:licence-copy.txt",
        "mine:code.py",
    }
    assert by_id["mine:story.txt"]["text"] == STORY
    assert by_id["mine:code.py"]["text"] == CODE * 4
    assert [by_id[f"mine:{name}"]["kind"] for name in ("story.txt", "code.py")] == ["prose", "code"]
    assert all(0 <= row["quality"] <= 1 for row in documents)
    assert list(documents[0])[:5] == ["id", "text", "source", "kind", "quality"]
    assert not any(name.startswith("_") for name in documents[0])
    assert summary["bytes"] == sum(len(row["text"].encode()) for row in documents)

    removed = {row["id"].removeprefix("mine:"): row for row in documents_of(stage_folder, "removed")}
    assert {name: row["step"] for name, row in removed.items()} == {
        "licence.txt": "exact_dedup",
        "licence-near.txt": "near_dedup",
        "short.txt": "gopher_quality",
        "german.txt": "english",
        "repeats.txt": "gopher_repetition",
        "generated.py": "code_rules",
        "leak.md": "decontaminate",
    }
    assert removed["licence.txt"]["duplicate_of"] == "mine:licence-copy.txt"
    assert removed["licence-near.txt"]["duplicate_of"] == "mine:licence-copy.txt"
    assert removed["short.txt"]["text"] == "Too short to be of use."
    assert removed["short.txt"]["detail"] == "6 < 50"
    leak = removed["leak.md"]
    assert [leak["text"][start:end] for start, end in leak["spans"]] == [PROMPT.rstrip(".")]
    good = (curated.corpus / "articles.jsonl").read_bytes().removesuffix(b"{broken\n")
    problems = {row["place"].removeprefix("mine:"): row["rule"] for row in problems_of(stage_folder)}
    assert problems == {
        "huge.html": "too long",
        "binary.txt": "NUL",
        "latin.txt": "not UTF-8",
        f"articles.jsonl@{len(good)}": "not JSON",
    }


def problems_of(folder: StageFolder) -> list[dict[str, Any]]:
    return read_jsonl(folder.path / "documents" / "problems.jsonl")


def test_funnel_adds_up(curated: Curated) -> None:
    rows = read_json(curated.folder.path / "documents" / "funnel.json")
    steps = config_for(curated.corpus).steps
    assert [row["step"] for row in rows] == ["select", "read", *(step.step for step in steps)]
    for before, after in pairwise(rows):
        assert (before["documents_out"], before["bytes_out"]) == (after["documents_in"], after["bytes_in"])
    for row in rows[2:]:
        assert row["documents_in"] - row["documents_out"] == sum(row["reasons"].values())
        assert row["bytes_in"] >= row["bytes_out"]
        assert row["tokens_out"] == round(row["bytes_out"] / 4.2)
    assert sum(sum(row["reasons"].values()) for row in rows[2:]) == curated.summary["removed"] == 7
    assert any("gopher_repetition" in line and "->" in line for line in curated.lines)  # the table is shown


def test_the_same_bytes_on_any_number_of_workers_and_again(tmp_path: Path) -> None:
    for number in range(3):
        write_rows(tmp_path / f"rows-{number}.jsonl", 2, seed=number)
    outputs = []
    for name, workers in (("one", 1), ("three", 3), ("again", 1)):
        folder = stage_at(tmp_path / name / "stage")
        steps = [
            {"step": "split"},
            {"step": "exact_dedup"},
            {"step": "gopher_quality", "where": {"kind": "prose"}},
            {"step": "near_dedup"},
        ]
        config = CurateConfig(sources=[{"files": str(tmp_path / "*.jsonl")}], steps=steps, workers=workers)
        run_stage(config, {}, folder)
        outputs.append(results(folder))
    assert outputs[0] == outputs[1] == outputs[2]
    rows = {row["step"]: row for row in json.loads(outputs[0]["funnel"])}
    assert all(sum(rows[step]["reasons"].values()) > 10 for step in ("exact_dedup", "gopher_quality", "near_dedup"))


def test_a_changed_threshold_computes_no_column_again(corpus: Path, tmp_path: Path) -> None:
    def annotations() -> set[str]:
        return {path.parent.name for path in (tmp_path / "curation").glob("annotate-*/*/columns.parquet")}

    def curated(name: str, **changes: Any) -> tuple[dict[str, bytes], int]:
        steps = [
            {"step": "split"},
            {"step": "gopher_quality", "where": {"kind": "prose"}, **changes},
            {"step": "english", "where": {"kind": "prose"}},
            *changes.pop("more", []),
        ]
        folder = stage_at(tmp_path / name)
        work = Work(tmp_path / "curation", folder.progress)
        curate(config_for(corpus, steps=steps), folder, work)
        return results(folder), work.tasks_run

    first, tasks = curated("first")
    assert tasks > 0
    assert curated("same") == (first, 0)
    before = annotations()
    changed, tasks = curated("changed", min_words=3)
    assert annotations() == before
    assert tasks == 3  # decide, documents, removed
    assert b"short.txt" not in changed["documents/removed.jsonl"] and b"short.txt" in first["documents/removed.jsonl"]
    steps = [{"step": "split"}, {"step": "gopher_quality", "where": {"kind": "prose"}}, {"step": "quality"}]
    folder = stage_at(tmp_path / "added")
    curate(config_for(corpus, steps=steps), folder, Work(tmp_path / "curation", folder.progress))
    assert len(annotations() - before) == 1  # only the new step


def test_a_rewritten_text_is_what_later_steps_see(tmp_path: Path, stage_folder: StageFolder) -> None:
    """Paragraphs seen before are cut out; what is then too short goes by the rule that follows, with the text it saw."""
    shared = article(1)
    rows = [{"id": "a", "text": shared}, {"id": "b", "text": f"{shared}\n\n{article(2)}"}, {"id": "c", "text": shared}]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    steps = [{"step": "exact_dedup", "scope": "paragraph"}, {"step": "gopher_quality"}]
    config = CurateConfig(sources=[{"files": str(tmp_path / "rows.jsonl")}], steps=steps, workers=1)
    run_stage(config, {}, stage_folder)
    texts = {row["id"]: row["text"] for row in documents_of(stage_folder)}
    assert texts.keys() == {"a", "b"}
    assert texts["a"] == shared
    assert texts["b"].strip() == article(2)
    funnel = read_json(stage_folder.path / "documents" / "funnel.json")
    assert funnel[-1]["bytes_out"] == sum(len(text) for text in texts.values())
    [gone] = documents_of(stage_folder, "removed")
    assert (gone["id"], gone["text"]) == ("c", shared)


def test_samples_are_limited_and_near_copies_show_their_partner(corpus: Path, stage_folder: StageFolder) -> None:
    for n in range(12):
        (corpus / f"short-{n}.txt").write_text(f"Short text number {n}.")
    run_stage(config_for(corpus, samples=3), {}, stage_folder)
    rows = read_jsonl(stage_folder.path / "documents" / "removed.jsonl")
    assert sum(row["step"] == "gopher_quality" for row in rows) == 3
    assert sum(row["step"] == "gopher_quality" for row in documents_of(stage_folder, "removed")) == 13  # all are kept
    (near,) = [row for row in rows if row["step"] == "near_dedup"]
    assert (near["id"], near["duplicate_of"]) == ("mine:licence-near.txt", "mine:licence-copy.txt")
    assert near["duplicate_text"].startswith("Permission  is  hereby")
    (leak,) = [row for row in rows if row["step"] == "decontaminate"]
    ((start, end),) = leak["spans"]
    assert leak["text"][start:end] == PROMPT.rstrip(".")
    assert all(len(row["text"]) <= 2000 and row["bytes"] > 0 for row in rows)


def test_nothing_left_is_an_error_with_the_funnel(corpus: Path, stage_folder: StageFolder) -> None:
    steps = [{"step": "split"}, {"step": "gopher_quality", "min_words": 90_000}]
    with pytest.raises(DataError) as caught:
        run_stage(config_for(corpus, steps=steps), {}, stage_folder)
    text = str(caught.value)
    assert text.startswith("curate: no document is left after the last step:\n")
    assert "40 -> 0" in text
    assert text.endswith("fix: loosen the step that removes most, or give more raw text")
    assert not (stage_folder.path / "documents").exists()


def test_a_stop_leaves_nothing_half_written(corpus: Path, tmp_path: Path, recorder: Listener) -> None:
    stop = StopSignal()
    folder = StageFolder(path=tmp_path / "stage", seed=1, progress=recorder, stop=stop)
    folder.path.mkdir()
    stop.request()
    with pytest.raises(Interrupted):
        run_stage(config_for(corpus), {}, folder)
    assert list(folder.path.iterdir()) == []


def test_duplicate_ids_stop_or_are_renamed(tmp_path: Path, recorder: Listener) -> None:
    names = ["a", "b", "a", "c", "a~2", "a", "b"]  # one of the new names is somebody's own
    rows = [{"id": name, "text": article(number)} for number, name in enumerate(names)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source, steps = {"files": str(tmp_path / "rows.jsonl")}, [{"step": "split"}]
    with pytest.raises(DataError, match=r"2 ids occur more than once \(3 documents too many\): 'a', 'b'(.|\n)*rename"):
        run_stage(CurateConfig(sources=[source], steps=steps, workers=1), {}, stage_at(tmp_path / "stop" / "stage"))
    folder = stage_at(tmp_path / "rename" / "stage", recorder)
    config = CurateConfig(sources=[source], steps=steps, on_duplicate_id="rename", workers=1)
    summary = run_stage(config, {}, folder)
    documents = documents_of(folder)
    assert [row["id"] for row in documents] == ["a", "b", "a~2", "c", "a~2~2", "a~3", "b~2"]
    assert [row["text"] for row in documents] == [row["text"] for row in rows]
    assert summary["renamed_ids"] == 4
    assert any(line.startswith("2 ids occur more than once; 3 documents renamed") for line in recorder.lines)


def test_budget_is_shared_between_sources(corpus: Path, tmp_path: Path, stage_folder: StageFolder) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text("".join(json.dumps({"text": article(1000 + n)}) + "\n" for n in range(200)))
    sources = [{"files": str(corpus / "story.txt"), "name": "small"}, {"files": str(other), "name": "large"}]
    summary = run_stage(
        config_for(corpus, sources=sources, steps=[{"step": "split"}], max_bytes=50_000), {}, stage_folder
    )
    assert summary["bytes_by_source"]["small"] == len(STORY)
    assert 48_000 < summary["bytes"] < 52_000


def test_results_are_copied_to_a_url(corpus: Path, tmp_path: Path, stage_folder: StageFolder) -> None:
    run_stage(config_for(corpus, copy_to=f"file://{tmp_path}/copy", keep_work=False), {}, stage_folder)
    for name in ("documents", "removed"):
        copied = {path.name: path.read_bytes() for path in (tmp_path / "copy" / name).iterdir()}
        assert copied == {path.name: path.read_bytes() for path in (stage_folder.path / name).iterdir()}
        assert copied
    assert not (tmp_path / "curation").exists()


def test_work_stays_until_results_are_copied(corpus: Path, tmp_path: Path, stage_folder: StageFolder) -> None:
    (tmp_path / "blocked").write_text("a file where a folder is wanted")
    config = config_for(corpus, copy_to=f"file://{tmp_path}/blocked/copy", keep_work=False)
    with pytest.raises(IngotError, match="blocked"):
        run_stage(config, {}, stage_folder)
    assert any((tmp_path / "curation").iterdir())


def test_the_installed_distribution(stage_folder: StageFolder, recorder: Listener) -> None:
    """A small cut of the real thing: licences are there in many copies, and real code and prose come out."""
    summary = run_stage(CurateConfig(max_bytes=1_500_000), {}, stage_folder)
    assert summary["bytes"] > 100_000
    rows = {row["step"]: row for row in read_json(stage_folder.path / "documents" / "funnel.json")}
    assert rows["select"]["bytes_in"] > 20_000_000
    assert 1_500_000 <= rows["select"]["bytes_out"] < 2_500_000
    assert any(line.startswith("not decontaminated") for line in recorder.lines)
    documents = documents_of(stage_folder)
    assert {row["kind"] for row in documents} <= {"prose", "code"}
    assert not any(row["id"].startswith("/") for row in documents)
