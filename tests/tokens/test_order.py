"""The order of documents against a plain sort of everything at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ingot.tokens.documents import id_hashes
from ingot.tokens.order import ENTRY, Entries, StoredEntries, merged, order_keys


def starts_of(entries: NDArray[np.void]) -> NDArray[np.int64]:
    lengths: NDArray[np.int64] = entries["tokens"]
    return np.cumsum(lengths) - lengths


def part(keys: NDArray[np.uint64], random: np.random.Generator) -> Entries:
    """Documents of random lengths whose tokens tell their key."""
    entries = np.zeros(len(keys), ENTRY)
    entries["key"], entries["tokens"] = keys, random.integers(0, 30, len(keys))
    entries["start"] = starts_of(entries)
    tokens = np.repeat((keys >> np.uint64(48)).astype("<u2"), entries["tokens"])
    return Entries(tokens, entries, random.random((len(keys), 2)) < 0.5).in_order()


def test_merging_equals_one_sort(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    parts = [part(random.integers(0, 2**64, size, np.uint64), random) for size in (300, 0, 1, 77)]
    stored = [StoredEntries(tmp_path / str(number), "<u2") for number in range(len(parts))]
    for one, place in zip(parts, stored, strict=True):
        place.folder.mkdir()
        one.save(place.folder)
    everything = np.sort(np.concatenate([one.entries for one in parts]), order="key")
    expected = np.repeat((everything["key"] >> np.uint64(48)).astype("<u2"), everything["tokens"])
    for range_bytes in (10**9, 2000, 100):
        found = list(merged(stored, range_bytes))
        assert len(found) == max(1, -(-sum(one.tokens.nbytes for one in parts) // range_bytes))
        np.testing.assert_array_equal(np.concatenate([one.entries["key"] for one in found]), everything["key"])
        np.testing.assert_array_equal(np.concatenate([one.tokens for one in found]), expected)
        for one in found:
            np.testing.assert_array_equal(one.entries["start"], starts_of(one.entries))
            assert len(one.routes) == len(one.entries)


def test_keys_are_spread_and_differ_by_seed_and_copy() -> None:
    places = id_hashes(map(str, range(20_000)), "held out")
    zero = np.zeros(len(places), np.int64)
    keys = order_keys(places, zero, 1)
    assert len(set(keys.tolist())) == len(keys)
    counts = np.bincount((keys >> np.uint64(60)).astype(np.int64), minlength=16)
    assert abs(counts - 1250).max() < 200  # six standard deviations of 34
    for other in (order_keys(places, zero, 2), order_keys(places, zero + 1, 1)):
        rank, rank_there = np.argsort(np.argsort(keys)), np.argsort(np.argsort(other))
        assert abs(np.corrcoef(rank, rank_there)[0, 1]) < 0.05
    assert abs(np.corrcoef(np.argsort(np.argsort(places)), np.argsort(np.argsort(keys)))[0, 1]) < 0.05
