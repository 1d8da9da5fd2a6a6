"""Gopher rules against a brute-force reference and against cases worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot.data.config import GopherQualityStep, GopherRepetitionStep
from ingot.data.rules import (
    duplicate_ngram_characters,
    duplicates,
    gopher_quality,
    gopher_repetition,
    repeated_characters,
)

from . import gopher_reference

WORDS = [
    "the",
    "of",
    "The",
    "and,",
    "a",
    "model",
    "#",
    "##x",
    "...",
    "wait…",
    "—",
    "42",
    "²",
    "-",
    "•",
    "naïve",
    "x" * 30,
]
PIECES = st.sampled_from([*WORDS, "\n", "\n\n", "\n- ", " • "])
TEXTS = st.lists(PIECES, max_size=160).map(" ".join)
FREE_TEXTS = st.text(max_size=400)
FEW_WORDS = st.lists(st.sampled_from(["a", "ab", "b", "ba", "c"]), max_size=60)

ENGLISH = (
    "The model reads every word of the text and learns to predict what comes after it. Nobody tells it the rules "
    "of grammar, yet with enough examples it will have found most of them on its own, because a good guess about "
    "the following word needs them. That is the whole idea, and it is surprising how far it goes in practice today."
)


@settings(max_examples=400, deadline=None)
@given(st.one_of(TEXTS, FREE_TEXTS))
def test_quality_equals_the_reference(text: str) -> None:
    assert gopher_quality(text, GopherQualityStep()).rule == gopher_reference.quality(text)


@settings(max_examples=400, deadline=None)
@given(st.one_of(TEXTS, FREE_TEXTS, FEW_WORDS.map(" ".join)))
def test_repetition_equals_the_reference(text: str) -> None:
    assert gopher_repetition(text, GopherRepetitionStep()).rule == gopher_reference.repetition(text)


def test_rules_equal_the_reference_on_real_text(rows_of: Callable[[str], list[dict[str, Any]]]) -> None:
    texts = [row["text"] for row in rows_of("dclm_human_quality/docs.jsonl.gz")[:150]]
    texts += [row["text"][:4000] for row in rows_of("udhr/udhr.jsonl.gz")[:60]]
    outcomes: set[str] = set()
    for text in texts:
        ours = (gopher_quality(text, GopherQualityStep()).rule, gopher_repetition(text, GopherRepetitionStep()).rule)
        assert ours == (gopher_reference.quality(text), gopher_reference.repetition(text))
        outcomes.update(ours)
    assert len(outcomes) > 5  # the sample is dirty enough to break many rules


def quality_reason(text: str) -> str:
    verdict = gopher_quality(text, GopherQualityStep())
    return f"{verdict.rule} {verdict.detail}".strip()


def of_words(count: int, word: str = "word") -> str:
    """A text of `count` words with two stop words."""
    return " ".join(["the", "of", *[word] * (count - 2)])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (ENGLISH, ""),
        (of_words(50), ""),
        (of_words(49), "word count 49 < 50"),
        (of_words(50) + " — —", ""),  # symbols are no words for the count …
        (of_words(48) + " — —", "word count 48 < 50"),
        ("the of " + "w " * 100_000, "word count 100002 > 100000"),
        (of_words(100, "it"), "mean word length 2.0 < 3"),
        (of_words(100, "x" * 12), "mean word length 11.8 > 10"),
        (of_words(90) + " #####", ""),  # 5 of 91
        (of_words(90) + " " + "#" * 10, "hash signs per word 0.11 > 0.1"),
        (of_words(99) + " ##########", ""),  # exactly 10 of 100 is not more than 0.1
        (of_words(99, "word...") + "", "ellipses per word 0.98 > 0.1"),
        ("- the of\n" + "- word and more\n" * 30 + "- end", "bullet lines 100.0% > 90%"),
        ("the of word word\n" * 6 + "\n".join(["word word word word…"] * 5 + ["word"] * 30), ""),
        (
            "\n".join(["the of word word word word word word word word word…"] * 4 + ["word"] * 9),
            "lines ending in an ellipsis 30.8% > 30%",
        ),
        (of_words(79) + " 12" * 21, "words with a letter 79.0% < 80%"),
        (of_words(80) + " 123" * 20, ""),
        ("the " + "word " * 60, "distinct stop words 1 < 2"),
        ("The AND " + "word " * 60, ""),
        ("", "word count 0 < 50"),
    ],
)  # fmt: skip
def test_quality_by_hand(text: str, reason: str) -> None:
    assert quality_reason(text) == reason


def test_quality_without_lower_limits_takes_symbols_only() -> None:
    step = GopherQualityStep(min_words=0, min_stop_words=0, min_letter_words=0, min_mean_word_length=0)
    assert not gopher_quality("— — —", step).removed
    assert gopher_quality(" \n ", step).rule == "word count"


def test_duplicates_count_all_but_the_first() -> None:
    assert duplicates(["aa", "b", "aa", "aa", "b", "c"]) == (3, 5)


def test_duplicate_ngrams_do_not_overlap() -> None:
    # a b a b a b: (a b) at 0, (b a) at 1 are new; (a b) at 2 is a hit and jumps to 4, where (a b) is a hit again
    assert duplicate_ngram_characters(["a", "b", "a", "b", "a", "b"], 2) == 4
    # after the jump the n-gram at 3 (b a) was never stepped on, but it is known from position 1
    assert duplicate_ngram_characters(["a", "b", "a", "b", "c", "b", "a"], 2) == 4
    assert duplicate_ngram_characters(["a", "b", "c", "d"], 2) == 0


@given(FEW_WORDS, st.integers(1, 4), st.integers(0, 4))
def test_one_pass_bounds_every_larger_size(words: list[str], size: int, more: int) -> None:
    assert repeated_characters(words, size) >= duplicate_ngram_characters(words, size + more)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (ENGLISH, ""),
        ("\n\n".join(["same"] * 3 + [ENGLISH]), "duplicate paragraphs"),
        ("\n\n".join([ENGLISH, ENGLISH[:-1], ENGLISH, "a", "b", "c", "d"]), "characters in duplicate paragraphs"),
        ("\n".join(["same"] * 3 + [ENGLISH]), "duplicate lines"),
        ("\n".join([ENGLISH, ENGLISH, "a", "b", "c", "d"]), "characters in duplicate lines"),
        (ENGLISH + " so what" * 20, "characters in the most frequent 2-gram"),
        (f"{ENGLISH} x {ENGLISH[:130]}", "characters in duplicate 5-grams"),
    ],
)
def test_repetition_by_hand(text: str, rule: str) -> None:
    assert gopher_repetition(text, GopherRepetitionStep()).rule == rule


def test_thresholds_are_the_published_ones() -> None:
    quality, repetition = GopherQualityStep(), GopherRepetitionStep()
    assert (quality.min_words, quality.max_words) == (50, 100_000)
    assert (quality.min_mean_word_length, quality.max_mean_word_length) == (3, 10)
    assert repetition.max_top_ngram_characters == {2: 0.20, 3: 0.18, 4: 0.16}
    assert repetition.max_duplicate_ngram_characters == {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10}
