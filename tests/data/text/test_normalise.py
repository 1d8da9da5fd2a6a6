"""Normalised texts against datatrove's `simplify_text` and against str.lower."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.data.text.normalise import Normal, normalise
from ingot.data.text.texts import Texts

# Left out: capital sigma (lower case depends on its place), and the few marks besides Mn that NFD may move.
ANY = st.characters(
    exclude_categories=["Cs", "Cn"],  # Cn: newer Unicode data elsewhere knows some of them
    exclude_characters=[
        "Σ",
        *(chr(p) for p in range(0x110000) if unicodedata.combining(chr(p)) and unicodedata.category(chr(p)) != "Mn"),
    ],
)
NUMBERS = st.sampled_from(
    ["1.234,5", "12", "٣٫٥", " ", ".", ",", "Ärger", "É", "e\u0301", "İ", "한국어", "—", "...", "１"]
)
TEXTS = st.lists(st.lists(st.one_of(st.text(ANY, max_size=20), NUMBERS), max_size=10).map("".join), max_size=5)


def strings(texts: Texts) -> list[str]:
    return [texts[index] for index in range(len(texts))]


def words(text: str) -> str:
    return " ".join(text.split())


@given(TEXTS)
def test_normalised_as_datatrove_does(texts: list[str]) -> None:
    simplify_text = pytest.importorskip("datatrove.utils.text").simplify_text
    assert strings(normalise(Texts.of(texts))) == [words(simplify_text(text)) for text in texts]


@given(TEXTS)
def test_lower_case_alone_is_that_of_python(texts: list[str]) -> None:
    lower = normalise(Texts.of(texts), Normal(numbers=False, punctuation="", accents=False))
    assert strings(lower) == [words(text.lower()) for text in texts]


def test_every_single_character() -> None:
    simplify_text = pytest.importorskip("datatrove.utils.text").simplify_text
    characters = [chr(point) for point in range(0x20000) if unicodedata.category(chr(point)) not in ("Cs", "Cn")]
    ours = strings(normalise(Texts.of([f"a{character}b" for character in characters])))
    for character, found in zip(characters, ours, strict=True):
        expected = words(simplify_text(f"a{character}b"))
        assert found == expected, hex(ord(character))


def test_by_hand() -> None:
    texts = ["  Hello,   WORLD!  ", "Σίσυφος", "3.14 and 1,000.5", "Crème brûlée — 12€", "...", ""]
    assert strings(normalise(Texts.of(texts))) == ["hello world", "σισυφος", "0 and 0 0", "creme brulee 0€", "", ""]
