"""Sets of word n-grams as arrays of 64-bit hashes: the common ground of near-duplicate search and decontamination.

A word is a run of letters, digits or underscores in lower case. Every different word gets a 64-bit hash (blake2b, so
that it is the same in every process and on every machine); a window of n words gets h = mix(sum_i hash(word_i) *
MULTIPLIER^(n - i)) mod 2^64. Two different windows share a hash with probability about 2^-64.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]

WORD = re.compile(r"\w+")
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd: the golden ratio in 64 bits


def words_of(text: str) -> list[str]:
    """Lower-case words without punctuation."""
    return WORD.findall(text.lower())


@lru_cache(maxsize=1_000_000)
def hash_word(word: str) -> int:
    """A 64-bit hash of a word, the same everywhere."""
    return int.from_bytes(blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


def hash_words(words: list[str]) -> Hashes:
    """The hashes of words, in order."""
    return np.fromiter(map(hash_word, words), dtype=np.uint64, count=len(words))


def window_hashes(words: Hashes, size: int) -> Hashes:
    """The hash of every window of `size` words; a shorter text is one window by itself."""
    size = min(size, len(words))
    windows = len(words) - size + 1
    if size == 0:
        return np.zeros(0, dtype=np.uint64)
    result = words[:windows].copy()
    for offset in range(1, size):
        result *= MULTIPLIER
        result += words[offset : offset + windows]
    return mix(result)


def mix(values: Hashes) -> Hashes:
    """Spread every input bit over every output bit (the finalizer of MurmurHash3), in place."""
    values ^= values >> np.uint64(33)
    values *= np.uint64(0xFF51AFD7ED558CCD)
    values ^= values >> np.uint64(33)
    values *= np.uint64(0xC4CEB9FE1A85EC53)
    values ^= values >> np.uint64(33)
    return values


def shingle_set(text: str, size: int) -> Hashes:
    """The set of the text's word n-grams, sorted."""
    return np.unique(window_hashes(hash_words(words_of(text)), size))


def shingle_sets(texts: list[str], size: int) -> list[Hashes]:
    """`shingle_set` of every text."""
    return [shingle_set(text, size) for text in texts]


def jaccard(first: Hashes, second: Hashes) -> float:
    """Size of the intersection over size of the union of two sorted sets."""
    if not len(first) and not len(second):
        return 1.0
    common = len(np.intersect1d(first, second, assume_unique=True))
    return common / (len(first) + len(second) - common)
