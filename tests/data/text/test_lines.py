"""Lines and paragraphs against Python's own str.split, str.splitlines and re.split."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from ingot.data.text.lines import blocks_of, lines_of, paragraphs_of
from ingot.data.text.texts import Texts
from ingot.data.text.words import words_of

from .test_words import pieces

PIECES = st.sampled_from(
    ["a", "word", " ", "\n", "\n", "\r", "\r\n", "\x0b", "\x0c", "\x1d", "\x85", "\u2028", "\u3000", "é"]
)
TEXTS = st.lists(st.lists(PIECES, max_size=25).map("".join), max_size=6)


@given(TEXTS)
def test_lines_and_paragraphs_are_those_of_python(strings: list[str]) -> None:
    texts = Texts.of(strings)
    lines = lines_of(texts)
    assert pieces(strings, lines) == [text.split("\n") for text in strings]
    assert pieces(strings, blocks_of(lines)) == [re.split("\n+", text) for text in strings]
    assert pieces(strings, lines_of(texts, "splitlines")) == [text.splitlines() for text in strings]
    paragraphs = paragraphs_of(texts, words_of(texts))
    expected = [re.split("\n{2,}", text.strip()) for text in strings]
    assert pieces(strings, paragraphs) == expected
    assert paragraphs.characters.tolist() == [len(paragraph) for text in expected for paragraph in text]
