"""Eight bytes at a time and one byte at a time agree; phrases are found where Python's `in` finds them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ingot.data.text import blocks
from ingot.data.text.characters import character_flags
from ingot.data.text.phrases import Phrases, find_phrases
from ingot.data.text.white_space import count_words


def named(answer: np.uint64) -> list[bool]:
    return [bool(byte & 0x80) for byte in int(answer).to_bytes(8, "little")]


@given(st.binary(min_size=8, max_size=8), st.binary(min_size=8, max_size=8))
def test_answers_byte_by_byte(data: bytes, other: bytes) -> None:
    block = np.uint64(int.from_bytes(data, "little"))
    assert named(blocks.others(block)) == [byte >= 0x80 for byte in data]
    assert named(blocks.continuations(block)) == [byte & 0xC0 == 0x80 for byte in data]
    equal = named(blocks.first_equal(block, np.uint64(other[0])))
    assert equal.index(True) == data.index(other[0]) if other[0] in data else not any(equal)
    ascii_only = bytes(byte & 0x7F for byte in data)
    answer = np.uint64(blocks.spaces(np.uint64(int.from_bytes(ascii_only, "little"))))
    assert named(answer) == [chr(byte).isspace() for byte in ascii_only]
    assert blocks.count_named(answer) == sum(named(answer))
    if answer:
        assert blocks.before_first(answer) == (1 << 8 * named(answer).index(True)) - 1


@given(st.text(st.sampled_from("ab \n\x07\x1f\u3000é中"), max_size=40), st.integers(0, 9))
def test_words_are_counted_as_str_split_does(text: str, behind: int) -> None:
    encoded = text.encode()
    data = np.frombuffer(encoded + b"x" * behind, np.uint8).copy()  # what lies behind the piece does not count
    assert count_words(data, 0, len(encoded), character_flags()) == len(text.split())


@given(st.text(st.sampled_from("abAB.é"), max_size=40), st.booleans())
def test_phrases_are_found_as_by_python(text: str, ignore_case: bool) -> None:
    phrases = ["ab", "aba", "bb.a", "é", "a.b.a", "baba"]
    data = np.frombuffer(text.encode(), np.uint8).copy()
    found = int(find_phrases(data, 0, len(data), Phrases.of(phrases, ignore_case=ignore_case)))
    searched = text.replace("A", "a").replace("B", "b") if ignore_case else text
    assert [bool(found >> number & 1) for number in range(len(phrases))] == [phrase in searched for phrase in phrases]
