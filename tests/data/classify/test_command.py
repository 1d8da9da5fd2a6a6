"""`ingot classifier` from labelled files of every form to a model and its scores."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

from ingot.cli.classifier import classifier_app
from ingot.data.steps.classify.labelled import read_labelled, read_texts
from ingot.data.steps.safety import term_hashes
from ingot.workspace.errors import DataError

RUN = CliRunner()


def test_train_then_score(tmp_path: Path) -> None:
    good = "\n".join(json.dumps({"body": f"clear sentence number {number}"}) for number in range(40))
    with gzip.open(tmp_path / "good.jsonl.gz", "wt") as file:
        file.write(good)
    (tmp_path / "bad.txt").write_text("\n".join(f"buy cheap pills {number}" for number in range(40)))
    arguments = ["train", "--positive", str(tmp_path / "good.jsonl.gz"), "--negative", str(tmp_path / "bad.txt")]
    arguments += ["--text", "body", "--out", str(tmp_path / "model"), "--epochs", "20", "--learning-rate", "0.5"]
    result = RUN.invoke(classifier_app, [*arguments, "--held-out", "0.3", "--recall", "0.8"], catch_exceptions=False)
    assert result.exit_code == 0
    report = json.loads((tmp_path / "model" / "classifier.json").read_text())["report"]
    assert report["accuracy"] == 1.0
    assert "positive" in result.stdout
    assert len(report["classes"]["positive"]["thresholds"]) == 1
    (tmp_path / "new.txt").write_text("a clear sentence\ncheap pills\n")
    scored = RUN.invoke(classifier_app, ["score", str(tmp_path / "model"), str(tmp_path / "new.txt")])
    first, second = map(json.loads, scored.stdout.splitlines())
    assert first["positive"] > 0.5 > second["positive"]


def test_labelled_files(tmp_path: Path) -> None:
    rows = [("one two", "a"), ("three", "b")]
    table = pyarrow.table({"text": [text for text, _ in rows], "label": [label for _, label in rows]})
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet")
    (tmp_path / "x.txt").write_text("__label__a one two\n\n__label__b three\n")
    (tmp_path / "x.jsonl").write_text('{"text": "one two", "label": "a"}\n{"text": "three", "label": "b"}\n')
    for name in ("x.parquet", "x.txt", "x.jsonl"):
        assert list(read_labelled(tmp_path / name, "text", "label")) == rows
    with pytest.raises(DataError, match=r"no column 'body' \(there are label, text\)"):
        list(read_texts(tmp_path / "x.jsonl", "body"))
    (tmp_path / "bad.jsonl").write_text('{"text": "one"}\n{oops\n')
    with pytest.raises(DataError, match="line 2"):
        list(read_texts(tmp_path / "bad.jsonl", "text"))
    (tmp_path / "bad.txt").write_text("no label\n")
    with pytest.raises(DataError, match="no label in front"):
        list(read_labelled(tmp_path / "bad.txt", "text", "label"))


def test_hash_terms(tmp_path: Path) -> None:
    (tmp_path / "terms.txt").write_text("Nerve Agent\n")
    result = RUN.invoke(classifier_app, ["hash-terms", str(tmp_path / "terms.txt")])
    assert result.stdout.split() == [f"{int(term_hashes(['nerve agent'])[0]):016x}"]
