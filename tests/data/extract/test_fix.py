"""Mojibake as ftfy repairs it, normal forms as the standard library has them; and clean text is left alone."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Callable
from typing import Any

import ftfy
import numpy as np
import pyarrow
import pytest
from ftfy.badness import is_bad
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot.data.apply import apply
from ingot.data.steps.fix_text import FixTextStep, fix_text, suspects
from ingot.data.steps.normalise import NormaliseStep
from ingot.data.text.texts import Texts, rewritten

CLEAN = [
    "",
    "plain ASCII\n\twith tabs",
    "naïve café",
    "“quotes” — dashes… it’s",
    "Привет, мир",
    "Γειά σου Κόσμε",
    "日本語",
    "1 × 2",
    "😀",
]
BROKEN = [
    "cafÃ© au lait", "itâ€™s", "âœ” No problems", "donâ\x80\x99t", "Ãºnico", "Ð¿Ñ€Ð¸Ð²ÐµÑ‚", "l’Ã©tÃ©", "Â£5", "schÃ¶n",
    "â€œquotedâ€\x9d", "SeÃ±or", "VÃ­deo", "voilÃ le travail", "RUF MICH ZURÃœCK", "вЂњmвЂќ", "Î³ÎµÎ¹Î¬", "ÃƒÂ©",
]  # fmt: skip


def expected(text: str) -> str:
    """The same repairs, all done by ftfy and the standard library, on every line."""
    lines = [ftfy.fix_encoding(line) for line in text.split("\n")]
    return fix_text("\n".join(lines))


@pytest.mark.parametrize("text", BROKEN)
def test_mojibake_is_repaired_as_by_ftfy(text: str) -> None:
    table = apply(FixTextStep(), ["before", f"first line\n{text}\nlast line é", "after"])
    assert table.column("text").to_pylist() == [
        "before",
        f"first line\n{ftfy.fix_encoding(text)}\nlast line é",
        "after",
    ]
    assert ftfy.fix_encoding(text) != text


def test_real_texts_in_many_languages(rows_of: Callable[[str], list[dict[str, Any]]]) -> None:
    """Each declaration of human rights, as it is and wrongly decoded: the same as ftfy on every line."""
    rows = [row["text"][:1500] for row in rows_of("udhr/udhr.jsonl.gz")][::5]
    wrong = [text.encode()[:1000].decode("cp1252", "replace") for text in rows]
    found = apply(FixTextStep(), rows + wrong).column("text").to_pylist()
    assert found == [expected(text) for text in rows + wrong]
    assert sum(a != b for a, b in zip(wrong, found[len(rows) :], strict=True)) > len(rows) / 2


@given(
    st.text(st.characters(max_codepoint=0x2600, exclude_categories=["Cs"]), max_size=6), st.sampled_from(BROKEN + CLEAN)
)
def test_whatever_ftfy_would_look_at_is_suspicious(text: str, around: str) -> None:
    for candidate in (text, around + text, text + around):
        marked = len(suspects(Texts.of([candidate]))) == 1
        if any(is_bad(line) for line in candidate.split("\n")) or fix_text(candidate) != candidate:
            assert marked


def test_clean_text_is_not_looked_at() -> None:
    assert list(suspects(Texts.of(CLEAN + BROKEN))) == list(range(len(CLEAN), len(CLEAN) + len(BROKEN)))


@pytest.mark.parametrize(
    ("text", "fixed"),
    [
        ("a\x00b\x07c\x7f", "abc"), ("soft\u00adhyphen", "softhyphen"), ("zero\u200bwidth\u2060x", "zerowidthx"),
        ("\ufeffmark", "mark"), ("one\r\ntwo\rthree\u2028four\u2029five", "one\ntwo\nthree\nfour\nfive"),
        ("می\u200cخواهم", "می\u200cخواهم"), ("👨\u200d👩", "👨\u200d👩"), ("tab\tstays\n", "tab\tstays\n"),
    ],
)  # fmt: skip
def test_invisible_characters(text: str, fixed: str) -> None:
    assert apply(FixTextStep(), [text, "x"]).column("text").to_pylist() == [fixed, "x"]


@given(st.lists(st.text(max_size=20), max_size=8), st.sampled_from(["NFC", "NFKC"]))
def test_normal_forms(texts: list[str], form: Any) -> None:
    texts = [*texts, "cafe\u0301", "ﬁne", "한글", "plain"]
    found = apply(NormaliseStep(form=form), texts).column("text").to_pylist()
    assert found == [unicodedata.normalize(form, text) for text in texts]


@settings(max_examples=50)
@given(st.lists(st.text(max_size=5), min_size=1, max_size=10), st.integers(0, 1000))
def test_some_rows_are_rewritten_and_the_others_copied(texts: list[str], seed: int) -> None:
    rows = [row for row in range(len(texts)) if random.Random(seed + row).random() < 0.5]
    column = pyarrow.chunked_array([pyarrow.array(["cut", *texts], pyarrow.large_string()).slice(1)])
    found = rewritten(column, np.array(rows, np.int64), lambda text: text + "é!").to_pylist()
    assert found == [text + "é!" if row in rows else text for row, text in enumerate(texts)]
