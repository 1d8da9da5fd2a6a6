"""Byte-pair encoding of one pretoken (Sennrich et al. 2016): of all adjacent pairs that have a merge, merge the one of
lowest rank, the leftmost of equals, until there is none.

Pairs are in a heap as `rank << 32 | position`, so n bytes take O(n log n) steps however long the pretoken is; the pieces
are a linked list over the positions of their first bytes. An entry whose pair has changed since is skipped.

Two ways to write merges down mean the same here. A list of pairs (tokenizer.json) gives each pair its rank. A list of
tokens by rank (tiktoken) merges any two pieces whose bytes together are a token: those are all its cuts into two tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.data.native import PRIME_1, loop

EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)
NONE = -1
LOW_HALF = np.uint64(0xFFFFFFFF)
ROWS = 5  # of the scratch that `merge` works in: heap, piece, rank, next, previous
HEAP, PIECE, RANK, NEXT, PREVIOUS = range(ROWS)


@loop
def slot_of(pairs: np.ndarray, pair: np.uint64) -> Any:
    """The slot of the pair in the table, or the empty slot where it would go."""
    mask = np.uint64(len(pairs) - 1)
    slot = (pair * PRIME_1) >> np.uint64(32) & mask
    while pairs[slot, 0] != pair and pairs[slot, 0] != EMPTY:
        slot = (slot + np.uint64(1)) & mask
    return np.int64(slot)


@loop
def fill_pairs(pairs: np.ndarray, keys: np.ndarray, values: np.ndarray) -> None:
    """Put pairs and what they become into an empty table; of equal pairs the last one stays."""
    for index in range(len(keys)):
        slot = slot_of(pairs, keys[index])
        pairs[slot, 0] = keys[index]
        pairs[slot, 1] = values[index]


def pair_table(merges: Iterable[tuple[int, int, int, int]]) -> NDArray[np.uint64]:
    """An open-addressing table [slots, 2] of `left << 32 | right` and `rank << 32 | merged`.

    A merge is (left, right, rank, merged), ids and a rank.
    """
    found = np.fromiter(chain.from_iterable(merges), np.uint64).reshape(-1, 4)
    pairs = np.full((1 << max(4, (2 * len(found)).bit_length()), 2), EMPTY)
    half = np.uint64(32)
    fill_pairs(pairs, found[:, 0] << half | found[:, 1], found[:, 2] << half | found[:, 3])
    return pairs


def merges_of_ranks(ranks: Mapping[bytes, int]) -> Iterable[tuple[int, int, int, int]]:
    """The merges that tiktoken's ranks mean: every cut of a token into two tokens has the token's rank."""
    for token, rank in ranks.items():
        for cut in range(1, len(token)):
            left, right = ranks.get(token[:cut]), ranks.get(token[cut:])
            if left is not None and right is not None:
                yield left, right, rank, rank


@loop
def push(scratch: np.ndarray, size: int, entry: Any) -> None:
    """Add an entry to the heap of `size` entries."""
    at = size
    while at > 0:
        parent = (at - 1) >> 1
        if scratch[HEAP, parent] <= entry:
            break
        scratch[HEAP, at] = scratch[HEAP, parent]
        at = parent
    scratch[HEAP, at] = entry


@loop
def pop(scratch: np.ndarray, size: int) -> int:
    """Take the least entry out of the heap of `size` entries."""
    least = scratch[HEAP, 0]
    entry = scratch[HEAP, size - 1]
    at, child = 0, 1
    while child < size - 1:
        if child + 1 < size - 1 and scratch[HEAP, child + 1] < scratch[HEAP, child]:
            child += 1
        if entry <= scratch[HEAP, child]:
            break
        scratch[HEAP, at] = scratch[HEAP, child]
        at, child = child, 2 * child + 1
    scratch[HEAP, at] = entry
    return least


@loop
def consider(scratch: np.ndarray, size: int, position: int, pairs: np.ndarray) -> int:
    """Look up the pair that begins at `position` and put it into the heap if it has a merge; the heap's new size."""
    following = scratch[NEXT, position]
    scratch[RANK, position] = NONE
    if following == NONE:
        return size
    pair = np.uint64(scratch[PIECE, position]) << np.uint64(32) | np.uint64(scratch[PIECE, following])
    slot = slot_of(pairs, pair)
    if pairs[slot, 0] == EMPTY:
        return size
    rank = np.int64(pairs[slot, 1] >> np.uint64(32))
    scratch[RANK, position] = rank
    push(scratch, size, rank << 32 | position)
    return size + 1


@loop
def merge(data: np.ndarray, start: int, end: int, bytes_ids: np.ndarray, pairs: np.ndarray, scratch: np.ndarray) -> Any:
    """Encode the bytes [start, end) and leave the ids at the start of scratch[PIECE]; gives their number.

    `scratch` has at least 2 * (end - start) columns: each merge takes one entry out of the heap and adds two at most. A byte
    that has no id is left out, as the `tokenizers` library does it.
    """
    count = 0
    for at in range(start, end):
        id = bytes_ids[data[at]]
        if id != NONE:
            scratch[PIECE, count] = id
            scratch[NEXT, count] = count + 1
            scratch[PREVIOUS, count] = count - 1
            count += 1
    if count == 0:
        return 0
    scratch[NEXT, count - 1] = NONE
    size = 0
    for position in range(count):
        size = consider(scratch, size, position, pairs)
    while size > 0:
        entry = pop(scratch, size)
        size -= 1
        position = entry & 0xFFFFFFFF
        if scratch[RANK, position] != entry >> 32:
            continue
        following = scratch[NEXT, position]
        pair = np.uint64(scratch[PIECE, position]) << np.uint64(32) | np.uint64(scratch[PIECE, following])
        scratch[PIECE, position] = np.int64(pairs[slot_of(pairs, pair), 1] & LOW_HALF)
        scratch[RANK, following] = NONE
        after = scratch[NEXT, following]
        scratch[NEXT, position] = after
        if after != NONE:
            scratch[PREVIOUS, after] = position
        size = consider(scratch, size, position, pairs)
        if scratch[PREVIOUS, position] != NONE:
            size = consider(scratch, size, scratch[PREVIOUS, position], pairs)
    found, position = 0, 0
    while position != NONE:
        scratch[PIECE, found] = scratch[PIECE, position]
        position = scratch[NEXT, position]
        found += 1
    return found
