"""A set of n-grams for millions of lookups a second: is this window of words in it, and in which evals is it?

    hash of w_1 … w_n  =  finish(sum_i w_i M^(n - i) + n)  mod 2^64        rolled along a text in constant time

    lookup: a bit in a map of 8 bits for each n-gram of this size (most windows end here), then an open table of ids
    ids:    n-gram g belongs to the evals  evals[starts[g] : starts[g + 1]]  (ascending)

Two different n-grams share a hash with probability 2^-64: ten million n-grams against 10^10 windows give one false hit
in 200 runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ingot.data.native import finish, loop

First = TypeVar("First", bound=np.generic)
Second = TypeVar("Second", bound=np.generic)

MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd: the golden ratio in 64 bits


@dataclass(frozen=True)
class NgramSet:
    """Different n-grams by ascending hash, the evals of each, and the tables to look them up."""

    hashes: NDArray[np.uint64]
    starts: NDArray[np.int64]
    evals: NDArray[np.int32]
    slots: NDArray[np.int32]
    bitmaps: dict[int, NDArray[np.uint8]]  # by number of words

    def __len__(self) -> int:
        return len(self.hashes)

    def frequencies(self) -> NDArray[np.int64]:
        """In how many evals each n-gram occurs."""
        return np.diff(self.starts)


@loop
def window_hash(words, start, size) -> Any:  # type: ignore[no-untyped-def]
    """The hash of words[start : start + size]."""
    value = np.uint64(0)
    for index in range(start, start + size):
        value = value * MULTIPLIER + words[index]
    return finish(value + np.uint64(size))


@loop
def find(value, slots, bitmap, hashes) -> Any:  # type: ignore[no-untyped-def]
    """The id of an n-gram by its hash, or -1."""
    bit = (value >> np.uint64(32)) & np.uint64(8 * len(bitmap) - 1)
    if bitmap[bit >> np.uint64(3)] >> np.uint8(bit & np.uint64(7)) & 1 == 0:
        return -1
    mask = np.uint64(len(slots) - 1)
    slot = value & mask
    while slots[slot] >= 0:
        if hashes[slots[slot]] == value:
            return slots[slot]
        slot = (slot + np.uint64(1)) & mask
    return -1


@loop
def _fill(hashes, slots) -> Any:  # type: ignore[no-untyped-def]
    mask = np.uint64(len(slots) - 1)
    for number in range(len(hashes)):
        slot = hashes[number] & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = number


def bitmap_of(hashes: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """A bit for each hash, by its upper half."""
    bits = min(power_of_two(8 * len(hashes)), 1 << 32)
    at = (hashes >> np.uint64(32)) & np.uint64(bits - 1)
    bitmap = np.zeros(bits // 8, np.uint8)
    np.bitwise_or.at(bitmap, at >> np.uint64(3), np.uint8(1) << (at & np.uint64(7)).astype(np.uint8))
    return bitmap


@loop
def _windows(words, offsets, sizes, values, owners, starts) -> Any:  # type: ignore[no-untyped-def]
    count = 0
    for text in range(len(offsets) - 1):
        for start in range(offsets[text], offsets[text + 1] - sizes[text] + 1):
            values[count] = window_hash(words, start, sizes[text])
            owners[count] = text
            starts[count] = start
            count += 1


def all_windows(
    words: NDArray[np.uint64], offsets: NDArray[np.int64], sizes: NDArray[np.int64]
) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int64]]:
    """For every window of every text (text d in windows of sizes[d] words): its hash, the text, its first word."""
    capacity = int(np.maximum(np.diff(offsets) - sizes + 1, 0).sum())
    values, owners, starts = np.empty(capacity, np.uint64), np.empty(capacity, np.int64), np.empty(capacity, np.int64)
    _windows(words, offsets, sizes, values, owners, starts)
    return values, owners, starts


def ngram_set(values: NDArray[np.uint64], owners: NDArray[np.int64], sizes: NDArray[np.int64]) -> NgramSet:
    """The n-grams with these hashes; the i-th is in eval owners[i] and has sizes[i] words. Repeats do no harm."""
    bitmaps = {size: bitmap_of(values[sizes == size]) for size in np.unique(sizes).tolist()}
    values, owners = unique_pairs(values, owners)
    hashes, starts = np.unique(values, return_index=True)
    slots = np.full(power_of_two(2 * len(hashes)), -1, np.int32)
    _fill(hashes, slots)
    return NgramSet(hashes, np.append(starts, len(values)).astype(np.int64), owners.astype(np.int32), slots, bitmaps)


def unique_pairs(first: NDArray[First], second: NDArray[Second]) -> tuple[NDArray[First], NDArray[Second]]:
    """The different pairs (first[i], second[i]), ascending."""
    order = np.lexsort((second, first))
    first, second = first[order], second[order]
    fresh = np.ones(len(order), bool)
    fresh[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    return first[fresh], second[fresh]


def power_of_two(least: int) -> int:
    """The smallest power of two that is at least this (and 8)."""
    return 1 << max(3, (least - 1).bit_length())


@loop
def _scan(words, offsets, size, slots, bitmap, hashes, capacity, documents, positions, ids) -> Any:  # type: ignore[no-untyped-def]
    """Every window of `size` words that is in the set; the number of them, also of those beyond `capacity`."""
    count = 0
    highest = np.uint64(1)
    for _ in range(size - 1):
        highest *= MULTIPLIER
    for text in range(len(offsets) - 1):
        first, last = offsets[text], offsets[text + 1]
        if last - first < size:
            continue
        value = np.uint64(0)
        for index in range(first, first + size - 1):
            value = value * MULTIPLIER + words[index]
        for start in range(first, last - size + 1):
            value = value * MULTIPLIER + words[start + size - 1]
            found = find(finish(value + np.uint64(size)), slots, bitmap, hashes)
            if found >= 0:
                if count < capacity:
                    documents[count] = text
                    positions[count] = start - first
                    ids[count] = found
                count += 1
            value -= words[start] * highest
    return count


@dataclass(frozen=True)
class Hits:
    """Windows of documents that are in a set, by document and position."""

    documents: NDArray[np.int64]
    positions: NDArray[np.int64]  # of the first word
    sizes: NDArray[np.int64]
    ids: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.documents)

    def of(self, keep: NDArray[np.bool_]) -> Hits:
        """The hits for which `keep` holds."""
        return Hits(self.documents[keep], self.positions[keep], self.sizes[keep], self.ids[keep])


def scan(words: NDArray[np.uint64], offsets: NDArray[np.int64], ngrams: NgramSet) -> Hits:
    """Every window that is in the set."""
    found = []
    for size, bitmap in ngrams.bitmaps.items():
        capacity = 1024
        while True:
            columns = [np.empty(capacity, np.int64) for _ in range(3)]
            count = _scan(words, offsets, size, ngrams.slots, bitmap, ngrams.hashes, capacity, *columns)
            if count <= capacity:
                break
            capacity = count
        documents, positions, ids = (column[:count] for column in columns)
        found.append((documents, positions, np.full(count, size, np.int64), ids))
    documents, positions, lengths, ids = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.lexsort((lengths, positions, documents))
    return Hits(documents[order], positions[order], lengths[order], ids[order])
