"""MinHash signatures and the banded search for pairs that are probably alike (Broder 1997; Leskovec et al., chapter 3).

A signature has bands x rows values; value k is the smallest of h_k(x) = upper 32 bits of (a_k x + b_k mod 2^64), a_k
odd, over the shingles x of a document. For two documents with Jaccard similarity s one value agrees with probability
s (the shingle that is smallest in the union lies in both), so that a whole band of r rows agrees with s^r, and at
least one of b bands with 1 - (1 - s^r)^b.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ingot.data.shingles import Hashes

Signatures = npt.NDArray[np.uint32]

FAMILY_SEED = 20231  # the hash family is part of the method, not of a run: signatures can be compared across runs
PASS_SHINGLES = 1 << 16  # shingles hashed at once: half a megabyte stays in the processor's cache


def signatures(sets: list[Hashes], count: int) -> list[Signatures]:
    """The MinHash signature (`count` values) of each shingle set; an empty set has the largest possible values."""
    family = np.random.default_rng(FAMILY_SEED)
    factors = family.integers(0, 2**64, size=count, dtype=np.uint64, endpoint=False) | np.uint64(1)
    summands = family.integers(0, 2**64, size=count, dtype=np.uint64, endpoint=False)
    result = np.full((len(sets), count), np.iinfo(np.uint32).max, dtype=np.uint32)
    for first, last in passes([len(shingles) for shingles in sets]):
        filled = [index for index in range(first, last) if len(sets[index])]
        if not filled:
            continue
        shingles = np.concatenate([sets[index] for index in filled])
        starts = np.cumsum([0, *(len(sets[index]) for index in filled[:-1])])
        for k in range(count):
            values = ((shingles * factors[k] + summands[k]) >> np.uint64(32)).astype(np.uint32)
            result[filled, k] = np.minimum.reduceat(values, starts)
    return list(result)


def passes(lengths: list[int]) -> Iterator[tuple[int, int]]:
    """Ranges of documents with about `PASS_SHINGLES` shingles each."""
    first = weight = 0
    for index, length in enumerate(lengths):
        weight += length
        if weight >= PASS_SHINGLES:
            yield first, index + 1
            first, weight = index + 1, 0
    if first < len(lengths):
        yield first, len(lengths)


def buckets(table: Signatures, bands: int, rows: int) -> Iterator[npt.NDArray[np.int64]]:
    """Groups of two or more documents whose signatures agree in a whole band, band by band, members ascending."""
    for band in range(bands):
        part = np.ascontiguousarray(table[:, band * rows : (band + 1) * rows])
        keys = part.view(np.dtype((np.void, part.dtype.itemsize * rows))).reshape(-1)
        order = np.argsort(keys, kind="stable")
        changes = np.flatnonzero(keys[order][1:] != keys[order][:-1]) + 1
        for group in np.split(order, changes):
            if len(group) > 1:
                yield group
