"""The English score on 529 languages and on real English."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ingot.data.apply import apply
from ingot.data.steps.english import EnglishStep

Rows = Callable[[str], list[dict[str, Any]]]
MADE_OF_ENGLISH = {"English", "Pidgin, Nigerian", "Scots", "Jamaican Creole English"}


def scores(texts: list[str]) -> list[float]:
    found: list[float] = apply(EnglishStep(), texts).column("english").to_pylist()
    return found


def test_declaration_of_human_rights(rows_of: Rows) -> None:
    rows = rows_of("udhr/udhr.jsonl.gz")
    names = [row["name"] for row in rows]
    found = scores([row["text"] for row in rows])
    passed = {name for name, score in zip(names, found, strict=True) if score >= 0.5}
    assert "English" in passed
    assert passed <= MADE_OF_ENGLISH  # precision: 525 other languages, none of them passes
    assert max(score for name, score in zip(names, found, strict=True) if name not in MADE_OF_ENGLISH) < 0.4


@pytest.mark.parametrize(
    "name", ["standard_ebooks/books.jsonl.gz", "openstax/modules.jsonl.gz", "peps/peps_half.jsonl.gz"]
)
def test_english_is_kept(rows_of: Rows, name: str) -> None:
    texts = [row["text"] for row in rows_of(name)[:200] if len(row["text"].split()) >= 50]
    assert sum(score >= 0.5 for score in scores(texts)) / len(texts) >= 0.99


def test_short_pieces_of_english_and_of_others(rows_of: Rows) -> None:
    """Single sentences are harder than pages: 60 words each."""
    english = [" ".join(row["question"].split()[:60]) for row in rows_of("gsm8k/train.jsonl.gz")[:500]]
    assert sum(score >= 0.5 for score in scores(english)) / len(english) > 0.95
    others = [row["text"] for row in rows_of("udhr/udhr.jsonl.gz") if row["name"] not in MADE_OF_ENGLISH]
    assert sum(score >= 0.5 for score in scores([" ".join(text.split()[:60]) for text in others])) <= 2


def test_reason_names_the_numbers() -> None:
    texts = ["Der Mensch ist frei geboren.", "It was the best of times, to be sure that we are with you and with it."]
    assert apply(EnglishStep(), texts).column("removed_by").to_pylist() == ["English score 0 < 0.5", None]
