"""Words and their properties against Python's own str and re, over all of Unicode."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.data.native import hash_span
from ingot.data.text.characters import (
    LETTER,
    LINE_BREAK,
    PLAIN,
    SPACE,
    SYMBOLS,
    TERMINAL,
    UPPER,
    WORD,
    character_flags,
)
from ingot.data.text.spans import Spans
from ingot.data.text.texts import Texts
from ingot.data.text.words import WordKind, words_of

ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
SPACES = st.sampled_from(
    [" ", "\n", "\t", "\u00a0", "\u2003", "\u3000", "\x1c", "\x85", "\u180e", "\u200b", "_", "é", "中"]
)
TEXTS = st.lists(st.lists(st.one_of(ANY, SPACES), max_size=12).map("".join), max_size=6)


def pieces(texts: list[str], spans: Spans) -> list[list[str]]:
    """The pieces of every text as strings."""
    data = Texts.of(texts).data
    cut = [data[start:end].tobytes().decode() for start, end in zip(spans.starts, spans.ends, strict=True)]
    return [cut[first:last] for first, last in zip(spans.offsets[:-1], spans.offsets[1:], strict=True)]


@given(TEXTS)
def test_words_are_those_of_python(texts: list[str]) -> None:
    white = words_of(Texts.of(texts), "whitespace")
    assert pieces(texts, white) == [text.split() for text in texts]
    assert pieces(texts, words_of(Texts.of(texts), "letters")) == [re.findall(r"\w+", text) for text in texts]
    words = [word for text in texts for word in text.split()]
    assert white.characters.tolist() == [len(word) for word in words]
    assert (white.flags & LETTER != 0).tolist() == [any(map(str.isalpha, word)) for word in words]
    assert (white.flags & UPPER != 0).tolist() == [any(map(str.isupper, word)) for word in words]


def test_flags_agree_with_python_at_every_code_point() -> None:
    flags = character_flags()
    characters = [chr(point) for point in range(0x110000)]
    for flag, answer in ((SPACE, str.isspace), (LETTER, str.isalpha), (UPPER, str.isupper)):
        assert np.array_equal(flags & flag != 0, np.fromiter(map(answer, characters), bool))
    every = "".join(characters)
    assert np.flatnonzero(flags & WORD).tolist() == [found.start() for found in re.finditer(r"\w", every)]
    breaks = [point for point, character in enumerate(characters) if len(f"a{character}b".splitlines()) == 2]
    assert np.flatnonzero(flags & LINE_BREAK).tolist() == breaks


def test_symbols_and_terminals_are_those_of_datatrove() -> None:
    text = pytest.importorskip("datatrove.utils.text")
    flags = character_flags()
    assert set(map(chr, np.flatnonzero(flags & TERMINAL))) == text.TERMINAL_PUNCTUATION
    assert set(map(chr, np.flatnonzero(flags & PLAIN == 0))) == text.PUNCTUATION_SET
    assert set(SYMBOLS) == set(text.PUNCTUATION)


@pytest.mark.parametrize("kind", ["whitespace", "letters"])
def test_a_slice_of_a_column_and_missing_texts(kind: WordKind) -> None:
    import pyarrow

    column = pyarrow.array(["one two", None, "three", "", "four five six"]).slice(1, 4)
    words = words_of(Texts.of(column), kind)
    assert words.per_text().tolist() == [0, 1, 0, 3]


def test_equal_words_have_equal_hashes_wherever_they_stand() -> None:
    texts = Texts.of(["alpha beta alphabet", "x alpha supercalifragilistic", "supercalifragilistic beta"])
    words = words_of(texts)
    strings = [word for text in pieces([texts[0], texts[1], texts[2]], words) for word in text]
    assert len(set(words.hashes.tolist())) == len(set(strings))
    for word, other in zip(strings, words.hashes, strict=True):
        alone = np.frombuffer(word.encode(), np.uint8)
        assert hash_span(alone, 0, len(alone), np.uint64(0)) == other
