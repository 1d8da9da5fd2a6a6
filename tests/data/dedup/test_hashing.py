"""Hashes of texts against Python's own equality."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ingot.data.native import hash_span
from ingot.data.steps.exact_dedup.documents import hash_texts
from ingot.data.text.hashing import SEED_HIGH, SEED_LOW, first_equal, hash_spans
from ingot.data.text.texts import Texts

TEXT = st.text(st.sampled_from("aAbB éÉ\t\n\u00a0\u3000ßЖж漢𝔸😀."), max_size=30)


def hashes(texts: list[str], *, exact: bool) -> list[tuple[int, int]]:
    high, low = hash_texts(Texts.of(texts), exact=exact)
    return list(zip(high.tolist(), low.tolist(), strict=True))


@given(st.lists(TEXT, min_size=1, max_size=12))
def test_exact_hashes_are_equal_when_the_texts_are(texts: list[str]) -> None:
    found = hashes(texts, exact=True)
    for one, first in enumerate(texts):
        for two, second in enumerate(texts):
            assert (found[one] == found[two]) == (first == second)


@given(st.lists(TEXT, min_size=1, max_size=12))
def test_loose_hashes_are_equal_up_to_case_and_white_space(texts: list[str]) -> None:
    found = hashes(texts, exact=False)
    plain = [" ".join(text.lower().split()) for text in texts]
    for one, first in enumerate(plain):
        for two, second in enumerate(plain):
            assert (found[one] == found[two]) == (first == second)


def test_loose_hashes_of_long_runs_of_ascii() -> None:
    """Eight bytes at a time: 4,000 texts of few letters and many blanks, so that every case at a boundary is met."""
    generator = random.Random(1)
    texts = [
        "".join(generator.choices("aAZz@[ \t", (2, 2, 1, 1, 1, 1, 4, 1), k=generator.randrange(24)))
        for _ in range(4000)
    ]
    plain = [" ".join(text.lower().split()) for text in texts]
    assert hashes(texts, exact=False) == hashes(plain, exact=False)
    assert len(set(hashes(plain, exact=False))) == len(set(plain))


def test_the_two_words_of_a_hash_are_independent() -> None:
    """Among 20,000 texts no 64-bit word repeats, and the two words share no more bits than chance."""
    high, low = hash_texts(Texts.of([f"text {number}" for number in range(20_000)]), exact=False)
    assert len(np.unique(high)) == len(np.unique(low)) == 20_000
    different = np.bitwise_count(high ^ low).astype(float)
    assert abs(different.mean() - 32) < 5 * 4 / 20_000**0.5  # binomial(64, 1/2): deviation 4


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=40))
def test_first_equal_is_the_first_of_its_kind(pairs: list[tuple[int, int]]) -> None:
    high = np.array([pair[0] for pair in pairs], np.uint64)
    low = np.array([pair[1] for pair in pairs], np.uint64)
    assert first_equal(high, low).tolist() == [pairs.index(pair) for pair in pairs]


def test_both_words_are_hash_span_of_the_bytes() -> None:
    """Spans of every length and place, up to the last byte of the array, where eight bytes cannot be loaded."""
    data = np.random.default_rng(1).integers(0, 256, 40).astype(np.uint8)
    starts, ends = (places.astype(np.int64) for places in np.triu_indices(41))
    high, low = hash_spans(data, starts, ends, exact=True)
    spans = list(zip(starts.tolist(), ends.tolist(), strict=True))
    assert high.tolist() == [hash_span(data, start, end, SEED_HIGH) for start, end in spans]
    assert low.tolist() == [hash_span(data, start, end, SEED_LOW) for start, end in spans]
    assert hash_span(data, 3, 9, SEED_LOW) == hash_span(data[3:9].copy(), 0, 6, SEED_LOW), "what lies behind counts not"
