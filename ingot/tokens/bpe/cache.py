"""Caches the ids of pretokens that were encoded before: a table from bytes to ids, exact and of bounded size.

Text repeats its words, so nearly every pretoken is found here and never merged. An entry of the open-addressing table is
three 64-bit words:

    bytes 0..7   |   bytes 8..14, length in the highest byte         |   count << 40 | id, or where the ids begin
    a hash       |   0xFF, length (16 bits), where the bytes begin   |   the same

Up to 15 bytes the entry is the pretoken itself; up to 255 its bytes are stored outside the table and compared, so two
pretokens with the same hash are told apart. Longer ones are not cached. When the table is two thirds full it is emptied,
but for the entries it was made with.

Invariant: what is found is what was put in; the cache never changes an id, only how fast it is found.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingot.data.native import PRIME_1, PRIME_2, hash_span, inline, load_8, loop

SHORT, LONGEST = 15, 255
MARK_LONG = 0xFF
OFFSET_BITS = 40
OFFSET_MASK = np.uint64((1 << OFFSET_BITS) - 1)
MASKS = np.array(
    [((1 << 8 * min(size, 8)) - 1, (1 << 8 * max(size - 8, 0)) - 1) for size in range(SHORT + 1)], np.uint64
)
ENTRIES, BYTES, IDS = range(3)  # what `used` counts


class PretokenCache(NamedTuple):
    """The table, the bytes of long pretokens, the ids of pretokens of several tokens, and how much of each is used."""

    table: NDArray[np.uint64]
    long: NDArray[np.uint8]
    ids: NDArray[np.uint32]
    used: NDArray[np.int64]


def make_cache(bits: int, reserved: int = 0) -> PretokenCache:
    """An empty cache of 2^bits entries, 40 bytes each, with `reserved` more bytes for long pretokens.

    The longest pretoken always fits when the cache holds nothing but those.
    """
    size = 1 << bits
    return PretokenCache(
        np.zeros((size, 3), np.uint64),
        np.zeros(8 * size + reserved + LONGEST, np.uint8),
        np.zeros(2 * size + LONGEST, np.uint32),
        np.zeros(3, np.int64),
    )


def copy_of(cache: PretokenCache) -> PretokenCache:
    """A copy that shares no memory with it."""
    return PretokenCache(cache.table.copy(), cache.long.copy(), cache.ids.copy(), cache.used.copy())


@loop
def restore(cache: PretokenCache, fresh: PretokenCache) -> None:
    """Empty the cache but for what it held when `fresh` was copied from it; a `fresh` of another size holds nothing.

    The bytes and ids of those entries are stored before all later ones, so they are still there.
    """
    same = len(fresh.table) == len(cache.table)
    for slot in range(len(cache.table)):
        for word in range(3):
            cache.table[slot, word] = fresh.table[slot, word] if same else np.uint64(0)
    for kind in range(3):
        cache.used[kind] = fresh.used[kind] if same else 0


@inline
def key_of(data: np.ndarray, start: int, end: int) -> tuple[np.uint64, np.uint64]:
    """The two words that an entry begins with; of a long pretoken without the offset of its bytes."""
    length = end - start
    if length > SHORT:
        high = np.uint64(MARK_LONG) << np.uint64(56) | np.uint64(length) << np.uint64(OFFSET_BITS)
        return hash_span(data, start, end, np.uint64(0)), high
    if start + 16 > len(data):  # too near the end to load words
        low, high = np.uint64(0), np.uint64(length) << np.uint64(56)
        for at in range(start, min(end, start + 8)):
            low |= np.uint64(data[at]) << np.uint64(8 * (at - start))
        for at in range(start + 8, end):
            high |= np.uint64(data[at]) << np.uint64(8 * (at - start - 8))
        return low, high
    low_mask, high_mask = MASKS[length, 0], MASKS[length, 1]
    high = load_8(data, start + 8) & high_mask
    return load_8(data, start) & low_mask, high | np.uint64(length) << np.uint64(56)


@inline
def find(cache: PretokenCache, data: np.ndarray, start: int, end: int, low: np.uint64, high: np.uint64) -> Any:
    """The slot of the pretoken, or the empty slot where it would go (its second word is 0)."""
    table = cache.table
    mask = np.uint64(len(table) - 1)
    mixed = (low ^ (high * PRIME_2)) * PRIME_1
    slot = (mixed ^ mixed >> np.uint64(32)) & mask
    while table[slot, 1] != 0:
        if table[slot, 0] == low:
            if table[slot, 1] == high:
                break
            if end - start > SHORT and table[slot, 1] & ~OFFSET_MASK == high:
                offset, same = np.int64(table[slot, 1] & OFFSET_MASK), True
                for index in range(end - start):
                    if cache.long[offset + index] != data[start + index]:
                        same = False
                        break
                if same:
                    break
        slot = (slot + np.uint64(1)) & mask
    return np.int64(slot)


@loop
def fits(cache: PretokenCache, length: int, count: int) -> bool:
    """Whether a pretoken of so many bytes and ids can be put in."""
    return (
        3 * cache.used[ENTRIES] < 2 * len(cache.table)
        and cache.used[BYTES] + length <= len(cache.long)
        and cache.used[IDS] + count <= len(cache.ids)
    )


@loop
def put(
    cache: PretokenCache,
    slot: Any,
    data: np.ndarray,
    start: int,
    end: int,
    low: np.uint64,
    high: np.uint64,
    ids: np.ndarray,
    count: int,
) -> None:
    """Fill the empty slot that `find` gave; it must fit."""
    if end - start > SHORT:
        offset = cache.used[BYTES]
        for index in range(end - start):
            cache.long[offset + index] = data[start + index]
        cache.used[BYTES] += end - start
        high |= np.uint64(offset)
    value = np.uint64(ids[0])
    if count != 1:
        offset = cache.used[IDS]
        for index in range(count):
            cache.ids[offset + index] = ids[index]
        cache.used[IDS] += count
        value = np.uint64(offset)
    cache.table[slot, 0] = low
    cache.table[slot, 1] = high
    cache.table[slot, 2] = np.uint64(count) << np.uint64(OFFSET_BITS) | value
    cache.used[ENTRIES] += 1
