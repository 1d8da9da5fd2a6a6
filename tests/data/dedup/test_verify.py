"""Verifying candidates: similarities by plain Python sets, and which documents of a giant component are compared at all."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from ingot.data.native import Hashes
from ingot.data.steps.near_dedup import NearDedupStep, minhash, verify
from tests.data.dedup.reference import similarity, words
from tests.data.dedup.shards import run


class InMemory(verify.Sets):
    """Shingle sets that lie in no file."""

    def __init__(self, sets: Sequence[set[int]]) -> None:
        self.sets = [np.array(sorted(each), np.uint64) for each in sets]

    def __len__(self) -> int:
        return len(self.sets)

    def __getitem__(self, index: int) -> Hashes:
        return self.sets[index]


def giant(
    monkeypatch: pytest.MonkeyPatch, keys: Sequence[Sequence[int]], sets: Sequence[set[int]], **step: Any
) -> list[int]:
    """The cluster of each document, where `keys` are its keys in each band."""
    monkeypatch.setattr(verify, "band_keys", lambda *_: np.array(keys, np.uint64))
    config = NearDedupStep(bands=len(keys[0]), rows=1, **{"min_jaccard": 0.5, **step})
    return verify.link_giant(InMemory(sets), config).tolist()


def unlike(count: int) -> list[set[int]]:
    """Sets that share nothing."""
    return [{10 * number, 10 * number + 1} for number in range(count)]


@pytest.mark.parametrize(("apart", "joined"), [(1, True), (7, True), (8, True), (9, False)])
def test_a_document_is_compared_with_eight_neighbours(
    monkeypatch: pytest.MonkeyPatch, apart: int, joined: bool
) -> None:
    sets = unlike(12)
    sets[1 + apart] = sets[1]
    expected = list(range(12))
    expected[1 + apart] = 1 if joined else 1 + apart
    assert giant(monkeypatch, [[5]] * 12, sets) == expected


def test_a_bucket_is_ordered_by_the_next_band(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first and the last of 42 agree in bands 0 and 1, both with 21 others; band 2 puts them far apart."""
    sets = unlike(42)
    sets[41] = sets[0]
    for after in ([100], []):  # after the last band comes the first
        keys = [[7, 50 + at, at, *after] if at < 21 else [50 + at, 7, at, *after] for at in range(42)]
        keys[0], keys[41] = [7, 7, 0, *after], [7, 7, 41, *after]
        assert giant(monkeypatch, keys, sets) == [*range(41), 0]
        turned = [[*each[1:], each[0]] for each in keys]
        assert giant(monkeypatch, turned, sets) == [*range(41), 0]


def test_only_documents_of_a_bucket_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    sets = [{1, 2}, {1, 2}, {1, 2}]
    assert giant(monkeypatch, [[4, 1], [5, 2], [6, 2]], sets) == [0, 1, 1]


def test_a_chain_from_the_last_to_the_first_is_one_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each points to the next smaller one when they are joined in this order: at the end all point to the first."""
    sets = [{number, number + 1, number + 2} for number in range(6)]  # neighbours share 2 of 4
    assert giant(monkeypatch, [[1, 9 - at] for at in range(6)], sets) == [0] * 6


@pytest.mark.parametrize(("minimum", "joined"), [(0.5, True), (0.5001, False)])
def test_exactly_as_alike_as_the_minimum_is_alike(
    monkeypatch: pytest.MonkeyPatch, minimum: float, joined: bool
) -> None:
    found = giant(monkeypatch, [[1], [1]], [{1, 2}, {1, 2, 3, 4}], min_jaccard=minimum)
    assert found == ([0, 0] if joined else [0, 1])


def _noted(usual: Callable[..., Any], name: str, calls: list[str]) -> Callable[..., Any]:
    def note(*given: Any) -> Any:
        calls.append(name)
        return usual(*given)

    return note


@pytest.mark.parametrize(("count", "compared"), [(499, "all"), (500, "giant")])
def test_from_500_documents_on_a_component_is_giant(monkeypatch: pytest.MonkeyPatch, count: int, compared: str) -> None:
    """Copies of one text."""
    calls: list[str] = []
    for name in ("all", "giant"):
        monkeypatch.setattr(verify, f"link_{name}", _noted(getattr(verify, f"link_{name}"), name, calls))
    text = " ".join(words(random.Random(4), 30))
    result = run(NearDedupStep(), [f"{text} {number}" for number in range(count)])  # numbers are normalised away
    assert calls == [compared]
    assert len(result.clusters()) == 1 and len(result.removed()) == count - 1


def test_jaccard_is_that_of_sets() -> None:
    generator = random.Random(8)
    for _ in range(300):
        one, two = (set(generator.choices(range(12), k=generator.randrange(1, 12))) for _ in range(2))
        true = len(one & two) / len(one | two)
        one_array, two_array = (np.array(sorted(each), np.uint64) for each in (one, two))
        assert verify.jaccard(one_array, two_array, 0.0) == true
        assert verify.jaccard(one_array, two_array, true) == true
    nothing = np.array([], np.uint64)
    assert verify.jaccard(nothing, nothing, 1.0) == 1.0


def test_it_stops_looking_when_the_minimum_cannot_be_reached() -> None:
    """50 of 350 are common, and known to be no more when the first half of the smaller set was not found in the larger."""
    small, large = np.array([*range(50), *range(900, 950)], np.uint64), np.arange(900, 1200, dtype=np.uint64)
    for one, other in ((small, large), (large, small)):
        assert verify.jaccard(one, other, 50 / 350) == 50 / 350
        assert verify.jaccard(one, other, 0.15) == 0.0


def test_texts_are_cut_into_shingles_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of one or two texts give what one block gives: every similarity is that of plain Python."""
    generator = random.Random(6)
    version = words(generator, 60)
    texts = []
    for number in range(7):
        version[8 * number] = words(generator, 1)[0]
        texts.append(" ".join(version))
    monkeypatch.setattr(minhash, "BLOCK_BYTES", 2 * len(texts[0]))
    rows = run(NearDedupStep(bands=64, rows=1, min_jaccard=0.3), texts).rows
    gone = [row for row in rows if row["broken"]]
    assert len(gone) == 6
    for row in gone:
        assert row["duplicate_similarity"] == pytest.approx(
            similarity(row["text"], texts[int(row["reason"])]), abs=1e-6
        )
