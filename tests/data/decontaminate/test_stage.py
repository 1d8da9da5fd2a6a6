"""Decontamination inside the curate stage: the report beside the funnel, and counts that do not depend on the split."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest

from ingot.data.config import CurateConfig
from ingot.data.curate import run as run_stage
from ingot.workspace.files import read_json, read_jsonl
from ingot.workspace.stage import StageFolder
from tests.making.rows import write_rows
from tests.making.stages import Listener, stage_folder

TEMPLATE = "Read the following text with care and then choose the answer that fits it best of all"
LEAKED = "a grey heron waits beside the frozen lock while seven narrow boats drift slowly towards the mill"


def run(folder: Path, corpus: Path, evals: Path, **options: Any) -> tuple[StageFolder, Listener]:
    recorder = Listener()
    folder.mkdir()
    stage = stage_folder(folder / "stage", recorder)
    config = CurateConfig.model_validate(
        {
            "sources": [{"files": str(corpus), "name": "mine"}],
            "steps": [{"step": "decontaminate", "against": [str(evals)], **options}],
            "workers": 1,
        }
    )
    run_stage(config, {}, stage)
    return stage, recorder


def test_report_and_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The words that every page has are no leak once the pages are counted; in one shard or in many."""
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    texts = [f"{TEMPLATE}. Page {number} is about {'nothing ' * number} and more." for number in range(40)]
    texts.append(f"Seen today: {TEMPLATE}: {LEAKED}. End of the page.")
    write_rows(corpus / "a.jsonl", ({"text": text} for text in texts))
    evals = tmp_path / "evals.jsonl"
    evals.write_text(json.dumps({"question": f"{TEMPLATE} {LEAKED}"}) + "\n" + json.dumps({"question": "short"}) + "\n")

    name = f"{tmp_path.name}/evals"
    outputs = []
    for size in (1_000_000, 500):
        monkeypatch.setattr("ingot.data.ingest.SMALLEST_SHARD", size)
        stage, recorder = run(tmp_path / f"counted{size}", corpus, evals, weights="corpus", min_share=0.5)
        assert "1 of 41 documents hold an eval" in recorder.lines
        assert [line.split() for line in recorder.lines if line.startswith(name)] == [
            [name, "2", "1", "1", "50.0%", "1"]
        ]
        report = read_json(stage.artifact("documents") / "decontaminate.json")
        assert (report["documents"], report["removed"]) == (41, 1)
        (example,) = report["sets"][name]["examples"]
        assert example["eval_text"] == f"{TEMPLATE} {LEAKED}"
        (removed,) = read_jsonl(stage.artifact("documents") / "removed.jsonl")
        assert removed["id"] == example["document"]
        assert removed["text"] == texts[-1]
        parts = sorted(stage.artifact("documents").glob("part-*.parquet"))
        rows = [row for part in parts for row in pyarrow.parquet.read_table(part).to_pylist()]
        outputs.append({row["id"]: row["contamination"] for row in rows})
    assert outputs[0] == outputs[1]
