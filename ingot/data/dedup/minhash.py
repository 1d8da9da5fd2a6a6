"""MinHash signatures and the keys of their bands (Broder 1997; Leskovec, Rajaraman and Ullman, chapter 3).

    x              lower 32 bits of a shingle's 64-bit hash
    h_k(x)         (a_k x + b_k) mod 2^32,  a_k odd                    k = 1 … bands · rows
    signature_k    min of h_k over the shingles of a document          P(two agree) = Jaccard similarity s
    a band         `rows` values; two documents agree in it with s^rows, in at least one with 1 - (1 - s^rows)^bands

Why 32 bits are enough. Each h_k is a permutation of the 32-bit words (a_k is odd), so that a shingle collides with
another only where their x are equal: among n shingles of a document that happens to n² / 2^33 pairs, 0.01 for 10,000
shingles, 1 for 100,000. That a false minimum is shared by two unlike documents of n shingles has probability about
n / 2^32 a value, and must happen `rows` times in a band. The compiler multiplies four (or eight) such words at once,
which it cannot do with 64-bit ones. Affine permutations are not min-wise independent for every set (Broder et al.
1998); on hashed x the deviation is too small to be seen: the tests compare the agreement with J, and the estimates with
datasketch's 61-bit family.

Invariant: the family has a fixed seed; signatures mean the same in every run and on every machine.
"""

from __future__ import annotations

import numpy as np

from ingot.data.native import finish, join, kernel
from ingot.data.text.arrays import Hashes, Offsets, Words

FAMILY_SEED = 20231  # the hash family is part of the method, not of a run
LARGEST = np.uint32(0xFFFFFFFF)


def family(count: int) -> tuple[Words, Words]:
    """The first `count` pairs (a_k, b_k)."""
    drawn = np.random.default_rng(FAMILY_SEED).integers(0, 1 << 32, size=(count, 2), dtype=np.uint32)
    return np.ascontiguousarray(drawn[:, 0] | np.uint32(1)), np.ascontiguousarray(drawn[:, 1])


@kernel
def _minima(shingles: Hashes, offsets: Offsets, factors: Words, summands: Words, signatures: Words) -> None:
    count = len(factors)
    for text in range(len(offsets) - 1):
        smallest = signatures[text]
        for index in range(offsets[text], offsets[text + 1]):
            shingle = np.uint32(shingles[index])
            for k in range(count):  # the loop that the compiler makes vectors of
                smallest[k] = min(smallest[k], np.uint32(factors[k] * shingle + summands[k]))


def signatures_of(shingles: Hashes, offsets: Offsets, count: int) -> Words:
    """The signature of each set of shingles (repeats do no harm); an empty set has the largest possible values."""
    found = np.full((len(offsets) - 1, count), LARGEST, np.uint32)
    _minima(shingles, offsets, *family(count), found)
    return found


@kernel
def band_keys(signatures: Words, bands: int, rows: int) -> Hashes:
    """A 64-bit key for each document (rows of the result) and band; the band's number is part of it."""
    keys = np.empty((len(signatures), bands), np.uint64)
    for text in range(len(signatures)):
        for band in range(bands):
            value = np.uint64(band)
            for row in range(rows):
                value = join(value, np.uint64(signatures[text, band * rows + row]))
            keys[text, band] = finish(value)
    return keys
