"""The formulas of split, english and quality against their plain versions, on any text."""

from __future__ import annotations

import json

import numpy as np
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.data.steps.english import english_scores
from ingot.data.steps.quality import code_quality, prose_quality
from ingot.data.steps.split import code_line_shares
from ingot.data.text.profile import profile
from ingot.data.text.texts import Texts
from tests.data.classify import oracle

WORDS = ["the", " of", "and ", "that", "İt", "²", "٣", "é", "K", "漢字", "😀", "x" * 101, "print x,"]
SIGNS = ['"""', "'''", "\\", "#", "\t", " ", "\n", "\r\n", "\x85", "\u2028", ".", "?", ")", "”", "_", "=="]
LINES = ["x = 1", "def f(", "if a:", "import os", "class A:", "return x", "f(1)", "{", ";", ">>> ", "@a", "const x;"]
PIECES = st.sampled_from(WORDS + SIGNS + LINES)
TEXTS = st.one_of(st.text(max_size=200), st.lists(PIECES, max_size=40).map("".join))


def assert_equal_to_plain(texts: list[str]) -> None:
    counts = profile(Texts.of(texts))
    for name, found, plain in (
        ("kind", code_line_shares(pyarrow.array(texts)), oracle.code_line_share),
        ("english", english_scores(counts), oracle.english_score),
        ("prose", prose_quality(counts), oracle.prose_quality),
        ("code", code_quality(counts), oracle.code_quality),
    ):
        expected = [plain(text) for text in texts]
        np.testing.assert_allclose(found, expected, atol=1e-12, err_msg=f"{name}: {json.dumps(texts)[:500]}")


@given(st.lists(TEXTS, min_size=1, max_size=5))
def test_any_texts(texts: list[str]) -> None:
    assert_equal_to_plain(texts)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n ",
        '"""a\\"""b"""',
        "\"\"\"open '''closed'''",
        "\\",
        '"""\\',
        "#a\n #b\nc#d\n\t#",
        'a.) " \nb?"\' \nc: d',
    ],
)
def test_corners(text: str) -> None:
    assert_equal_to_plain([text])
