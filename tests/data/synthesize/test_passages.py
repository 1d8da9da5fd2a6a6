"""Passages are slices of the text, in order, apart, and of the length asked for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingot.data.synthesize.sample import passages, sentences

TEXTS = st.lists(st.sampled_from(["one", "two.", "three!", "\n", "\n\n", " ", "“four?”", "\t", "…"]), max_size=60)


@given(TEXTS.map(" ".join), st.integers(1, 6), st.integers(0, 8))
def test_passages_are_disjoint_slices_of_the_right_length(text: str, shortest: int, more: int) -> None:
    found = list(passages("d", text, shortest, shortest + more))
    before = 0
    for passage in found:
        assert before <= passage.start < passage.end
        assert passage.text == text[passage.start : passage.end] == passage.text.strip()
        assert shortest <= len(passage.text.split()) <= shortest + more
        before = passage.end


@given(TEXTS.map(" ".join), st.integers(1, 9))
def test_with_no_lower_bound_no_word_is_lost(text: str, longest: int) -> None:
    words = [word for passage in passages("d", text, 1, longest) for word in passage.text.split()]
    assert words == text.split()


def test_paragraphs_are_joined_and_long_ones_cut_at_sentences() -> None:
    text = "A b c.\n\nD e.\n\nOne two three four. Five six seven. Eight nine."
    assert [passage.text for passage in passages("d", text, 1, 5)] == [
        "A b c.\n\nD e.",
        "One two three four.",
        "Five six seven. Eight nine.",
    ]
    assert sentences("He said “no.” Then\nhe left! Why") == ["He said “no.”", "Then he left!", "Why"]
