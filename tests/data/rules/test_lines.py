"""Rules that rewrite texts line by line: C4, the line modifiers, newlines."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.data.apply import apply
from ingot.data.steps.c4 import C4Step
from ingot.data.steps.newlines import NewlinesStep

from .datatrove_filters import decisions
from .outside import LINE_MODIFIERS, example

PIECES = st.sampled_from(
    ["One two three.", "four five", "[1]", "[edit]", "[citation needed]", "[x]", "[[2]", "...", " ", "\n", "\r\n", "\u2028",
     "JavaScript is on.", "Lorem Ipsum dolor.", "{", "Our Privacy Policy.", "we use cookies!", "x" * 12, '"', "é", "\u3000"]
)  # fmt: skip


@given(st.lists(st.lists(PIECES, max_size=14).map("".join), max_size=4), st.booleans())
def test_c4_equals_datatrove_on_odd_lines(texts: list[str], punctuation: bool) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        expected = decisions(
            monkeypatch,
            "c4_filters",
            "C4QualityFilter",
            texts,
            filter_no_terminal_punct=punctuation,
            max_word_length=20,
            min_num_sentences=1,
        )
    table = (
        apply(
            C4Step(terminal_punctuation=punctuation, max_word_length=20, min_sentences=1),
            [{"text": text} for text in texts],
        )
        if texts
        else None
    )
    for number, (reason, text) in enumerate(expected):
        assert table is not None
        removed = table.column("removed_by")[number].as_py()
        assert (removed or "").split(" ")[0] == {
            None: "",
            "lorem_ipsum": "lorem",
            "curly_bracket": "curly",
            "too_few_sentences": "sentences",
        }[reason]
        assert reason or table.column("text")[number].as_py() == text


COUNTER = re.compile(
    r"\W*\d(?:,|\.|\d)*[kmb]?\s+(?:likes|shares|comments|retweets|reposts|quotes|bookmarks|upvotes|downvotes|downloads|"
    r"views|followers)\W*"
)


def modified(text: str) -> str:
    """The line modifiers written a second time, with regular expressions."""
    kept = []
    for line in text.split("\n"):
        if line:
            upper, digits = sum(map(str.isupper, line)), sum(character in "0123456789" for character in line)
            if upper / len(line) > 0.5 or digits == len(line) or len(line.split()) < 2:
                continue
            if re.fullmatch(COUNTER, line.lower()):
                continue
            if len(line.split()) <= 10:
                short = re.sub(r" ?items in cart ?", " ", line)
                short = re.sub(r" ?Read more\.\.\.\Z", "", short)
                short = re.sub(r"\ASign-in ?", "", short)
                if not short.strip():
                    continue
                line = short
        kept.append(line)
    return "\n".join(kept)


LINES = st.lists(
    st.one_of(
        st.sampled_from(
            [
                "1,204 likes",
                "3.5K  Shares!",
                "* 12 views *",
                "12 views today",
                "5x likes",
                "3.. M likes",
                "2 items in cart",
                "items in cart",
                "Read more...",
                "The story Read more...",
                "Sign-in here",
                "Sign-in",
                "please Sign-in now",
                "ALL UPPER CASE",
                "ÉCOLE ÀÉÈ bas",
                "12345",
                "12345 6",
                "word",
                "two words",
                "",
                " ",
                "①② x",
                "a b c d e f g h i items in cart",
                "items in cartitems in cart x y",
                "Read more... Read more...",
            ]
        ),
        st.text(st.sampled_from("aA1É .,k"), max_size=12),
    ),
    max_size=8,
)


@given(LINES)
def test_line_modifiers_equal_regular_expressions(lines: list[str]) -> None:
    text = "\n".join(lines)
    table = apply(example(LINE_MODIFIERS), [text])
    assert table.column("text")[0].as_py() == modified(text)
    before, after = len(text.split()), len(modified(text).split())
    assert table.column("_removed_word_share")[0].as_py() == pytest.approx((before - after) / before if before else 0)


def test_line_modifiers_remove_documents_that_lose_too_much() -> None:
    prose = "this line has ten words and all of them stay\n"
    table = apply(example(LINE_MODIFIERS), [prose * 4 + "12 likes", prose * 3 + "12 likes"])
    assert table.column("removed_by").to_pylist() == [None, "words in removed lines 0.0625 > 0.05"]
    assert table.column("text")[0].as_py() == (prose * 4)[:-1]


@given(st.text(st.sampled_from("ab\n"), max_size=30), st.integers(1, 3))
def test_newlines(text: str, most: int) -> None:
    table = apply(NewlinesStep(max_consecutive=most), [text])
    expected = re.sub(rf"\n{{{most + 1},}}", "\n" * most, text)
    assert table.column("text")[0].as_py() == expected
    assert table.column("_removed_newlines")[0].as_py() == len(text) - len(expected)
