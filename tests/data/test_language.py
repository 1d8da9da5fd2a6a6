"""The English score on 529 languages and on real English."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.data.config import LanguageStep
from ingot.data.language import check_language, english_score

Rows = Callable[[str], list[dict[str, Any]]]
MADE_OF_ENGLISH = {"English", "Pidgin, Nigerian", "Scots", "Jamaican Creole English"}


def test_declaration_of_human_rights(rows_of: Rows) -> None:
    rows = rows_of("udhr/udhr.jsonl.gz")
    passed = {row["name"] for row in rows if english_score(row["text"]) >= 0.5}
    assert "English" in passed
    assert passed <= MADE_OF_ENGLISH  # precision: 525 other languages, none of them passes
    margin = max(english_score(row["text"]) for row in rows if row["name"] not in MADE_OF_ENGLISH)
    assert margin < 0.4


@pytest.mark.parametrize(
    ("name", "recall"),
    [("standard_ebooks/books.jsonl.gz", 0.99), ("openstax/modules.jsonl.gz", 0.99), ("peps/peps_half.jsonl.gz", 0.99)],
)
def test_english_is_kept(rows_of: Rows, name: str, recall: float) -> None:
    texts = [row["text"] for row in rows_of(name)[:200] if len(row["text"].split()) >= 50]
    assert sum(english_score(text) >= 0.5 for text in texts) / len(texts) >= recall


def test_short_pieces_of_english_and_of_others(rows_of: Rows) -> None:
    """Single sentences are harder than pages: 60 words each."""
    english = [" ".join(row["question"].split()[:60]) for row in rows_of("gsm8k/train.jsonl.gz")[:500]]
    assert sum(english_score(text) >= 0.5 for text in english) / len(english) > 0.95
    others = [row for row in rows_of("udhr/udhr.jsonl.gz") if row["name"] not in MADE_OF_ENGLISH]
    wrong = [row["name"] for row in others if english_score(" ".join(row["text"].split()[:60])) >= 0.5]
    assert len(wrong) <= 2, wrong


@given(st.text(max_size=300))
def test_score_is_a_share(text: str) -> None:
    assert 0.0 <= english_score(text) <= 1.0


def test_verdict_names_the_numbers() -> None:
    verdict = check_language("Der Mensch ist frei geboren und liegt überall in Ketten.", LanguageStep())
    assert (verdict.rule, verdict.detail) == ("English score", "0.00 < 0.5")
    kept = check_language(
        "It was the best of times and it was the worst of times, to be sure that we are.", LanguageStep()
    )
    assert not kept.removed
    assert kept.annotations["english"] == 1.0
