"""Compares the windows of anchors with the same gram: which are equal, byte for byte.

An anchor is sent with its *context*: the bytes of all windows that chose it, at most 2 L - k. In a group of anchors with
the same gram, two windows can only be equal if they are at the same distance before their anchors; so distance by
distance all windows of the group go through a hash table, and every hit is compared byte by byte (after the first hit
with the same partner one new byte is enough). A collision of hashes costs time and changes nothing.

    keep_first        a window at x that stood first at f loses  [max(x, f + L), x + L):  what overlaps its first copy stays
    not keep_first    all windows of a class of two or more are struck

Positions are *orders*, shard index << 40 | byte: one integer that sorts as the documents do.

Invariant: contexts come in ascending order inside a group, so the first window in the table is the first copy.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ingot.data.native import finish, kernel
from ingot.data.steps.substring_dedup.anchors import BASE, ONE, Anchors, gram_bytes, grown
from ingot.data.text.texts import Texts

ORDER_BITS = 40
STRIKE = np.dtype([("start", np.int64), ("end", np.int64)])


def context_type(length: int) -> np.dtype[np.void]:
    """The record of an anchor: `before` is the distance from its first window to its gram."""
    return np.dtype(
        [
            ("hash", np.uint64),
            ("order", np.int64),  # of the first window
            ("before", np.int32),
            ("windows", np.int32),
            ("bytes", np.uint8, (2 * length - gram_bytes(length),)),
        ]
    )


@kernel
def _copy_spans(data: np.ndarray, starts: np.ndarray, sizes: np.ndarray, out: np.ndarray) -> None:
    for row in range(len(starts)):
        for index in range(sizes[row]):
            out[row, index] = data[starts[row] + index]


def contexts_of(texts: Texts, anchors: Anchors, wanted: NDArray[np.int64], shard: int, length: int) -> NDArray[np.void]:
    """The contexts of the anchors with the numbers `wanted`."""
    gram, first, last = anchors.windows[wanted].T
    contexts = np.zeros(len(wanted), context_type(length))
    contexts["hash"] = anchors.hashes[wanted]
    contexts["order"] = (np.int64(shard) << ORDER_BITS) | first
    contexts["before"] = gram - first
    contexts["windows"] = last - first + 1
    _copy_spans(texts.data, first + texts.offsets[0], last - first + length, contexts["bytes"])
    return contexts


@kernel
def _hash_window(context: np.ndarray, row: int, index: int, length: int) -> np.uint64:
    """The rolling hash of a window, from the beginning."""
    value = np.uint64(0)
    for at in range(index, index + length):
        value = value * BASE + np.uint64(context[row, at]) + ONE
    return value


@kernel
def _equal_bytes(context: np.ndarray, one: int, one_at: int, other: int, other_at: int, most: int) -> int:
    """How many bytes two contexts share from here on, at most `most`."""
    for index in range(most):
        if context[one, one_at + index] != context[other, other_at + index]:
            return index
    return most


@kernel
def _close(strikes: np.ndarray, count: int, begun: int, ended: int) -> tuple[np.ndarray, int]:
    """Write down an interval, if there is one."""
    if ended >= 0:
        if count == len(strikes):
            strikes = grown(strikes)
        strikes[count, 0], strikes[count, 1] = begun, ended
        count += 1
    return strikes, count


@kernel
def _strike(
    groups: np.ndarray,
    order: np.ndarray,
    before: np.ndarray,
    windows: np.ndarray,
    context: np.ndarray,
    length: int,
    keep_first: bool,
) -> np.ndarray:
    """Intervals [start, end) to strike; group g has the contexts groups[g] … groups[g + 1] - 1."""
    leaving = ONE  # factor of the byte that leaves a window
    for _ in range(length):
        leaving *= BASE
    largest = 1
    for group in range(len(groups) - 1):
        largest = max(largest, groups[group + 1] - groups[group])
    slots = 2
    while slots < 2 * largest:
        slots *= 2
    table_round = np.zeros(slots, np.int64)  # the round that filled the slot: no clearing between rounds
    table_hash, table_member = np.empty(slots, np.uint64), np.empty(slots, np.int64)
    rolling = np.empty(largest, np.uint64)  # of the last window that was looked up,
    rolled = np.empty(largest, np.int64)  # and its distance
    leader = np.empty(largest, np.int64)  # a member with the same window,
    until = np.empty(largest, np.int64)  # and the distance down to which their windows stay the same
    first = np.empty(largest, np.int64)  # the first member with the same window, in this round
    begun = np.empty(largest, np.int64)  # the open interval of each member,
    ended = np.empty(largest, np.int64)  # -1: none
    strikes, count = np.empty((1024, 2), np.int64), 0
    rounds = 0
    for group in range(len(groups) - 1):
        base = groups[group]
        members = groups[group + 1] - base
        slots = 2  # of the table that this group uses: for small groups it stays in the cache
        while slots < 2 * members:
            slots *= 2
        mask = np.uint64(slots - 1)
        furthest, nearest = before[base], before[base]
        for member in range(members):
            furthest = max(furthest, before[base + member])
            nearest = min(nearest, before[base + member] - windows[base + member] + 1)
            until[member], ended[member] = furthest + 1, -1
            rolled[member] = -1
        for distance in range(furthest, nearest - 1, -1):
            rounds += 1
            for member in range(members):
                row = base + member
                index = before[row] - distance  # which window of the member
                if index < 0 or index >= windows[row]:
                    continue
                if index > 0 and distance >= until[member]:
                    first[member] = first[leader[member]]
                else:
                    if index > 0 and rolled[member] == distance + 1:
                        value = rolling[member] * BASE + np.uint64(context[row, index + length - 1]) + ONE
                        value -= (np.uint64(context[row, index - 1]) + ONE) * leaving
                    else:
                        value = _hash_window(context, row, index, length)
                    rolling[member], rolled[member] = value, distance
                    first[member] = member
                    until[member] = distance + 1
                    slot = finish(value) & mask
                    while table_round[slot] == rounds:
                        other = table_member[slot]
                        there = before[base + other] - distance
                        if table_hash[slot] == value:
                            most = length + min(windows[row] - index, windows[base + other] - there) - 1
                            same = _equal_bytes(context, row, index, base + other, there, most)
                            if same >= length:
                                first[member] = leader[member] = other
                                until[member] = distance - (same - length)
                                break
                        slot = (slot + ONE) & mask
                    if first[member] == member:
                        table_round[slot], table_hash[slot], table_member[slot] = rounds, value, member
                if first[member] == member:
                    continue
                start = order[row] + index
                earlier = base + first[member]
                first_start = order[earlier] + before[earlier] - distance
                begin = max(start, first_start + length) if keep_first else start
                for struck, low, high in (
                    (member, begin, start + length),
                    (first[member], first_start, first_start + length),
                ):
                    if low > ended[struck]:
                        strikes, count = _close(strikes, count, begun[struck], ended[struck])
                        begun[struck] = low
                    begun[struck] = min(begun[struck], low)  # a later window may be struck further to the left
                    ended[struck] = max(ended[struck], high)
                    if keep_first:
                        break
        for member in range(members):
            strikes, count = _close(strikes, count, begun[member], ended[member])
    return strikes[:count]


def strikes_of(contexts: NDArray[np.void], length: int, keep_first: bool) -> NDArray[np.void]:
    """What the groups among these contexts strike. The contexts of one gram must all be here, first documents first."""
    contexts = contexts[np.argsort(contexts["hash"], kind="stable")]
    changes = np.flatnonzero(contexts["hash"][1:] != contexts["hash"][:-1]) + 1
    groups = np.concatenate([[0], changes, [len(contexts)]]).astype(np.int64)
    order, before, windows = (np.ascontiguousarray(contexts[name]) for name in ("order", "before", "windows"))
    found = _strike(groups, order, before, windows, contexts["bytes"], length, keep_first)
    return np.ascontiguousarray(found).view(STRIKE).reshape(-1)
