"""Finds phrases in a text, in one pass whatever their number.

The last five bits of three bytes, which are the same for both cases of a letter, say where a phrase may begin; a load of
eight bytes gives the keys of six positions. There two bytes say which phrases, and only those are compared.
Letters A-Z match in either case if asked; other characters match exactly.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingot.data.native import Bytes, Marks, Offsets, load_8, loop
from ingot.data.text.blocks import EIGHT

FIVE_BITS = np.uint64(0x001F001F001F001F)  # of every other byte
KEY = np.uint64(0x7FFF)


class Phrases(NamedTuple):
    """Phrases ready to be looked for; sorted, so that those with the same first two bytes are neighbours.

    A kernel takes it as one argument.
    """

    data: Bytes
    offsets: Offsets
    numbers: Offsets  # the index of each phrase in the list they were made from
    fold: Bytes  # byte -> byte: lower case, or itself
    may_begin: Marks  # by the last five bits of the first, second and third byte, the first lowest
    begins: NDArray[np.uint16]  # by first byte << 8 | second byte: the first phrase that may begin there
    counts: NDArray[np.uint16]  # and how many may

    @classmethod
    def of(cls, phrases: list[str], *, ignore_case: bool) -> Phrases:
        """Make them ready; none is shorter than two bytes."""
        fold = np.arange(256, dtype=np.uint8)
        if ignore_case:
            fold[ord("A") : ord("Z") + 1] += 32
        folded = [bytes(fold[list(phrase.encode())]) for phrase in phrases]
        if any(len(phrase) < 2 for phrase in folded):
            raise ValueError("a phrase has two bytes or more")
        may_begin = np.zeros((32, 32, 32), bool)
        for phrase in folded:
            third = slice(None) if len(phrase) == 2 else phrase[2] & 31
            may_begin[third, phrase[1] & 31, phrase[0] & 31] = True
        numbers = sorted(range(len(folded)), key=folded.__getitem__)
        ordered = [folded[number] for number in numbers]
        starts = np.array([phrase[0] << 8 | phrase[1] for phrase in ordered], np.int64)
        pairs = (fold.astype(np.int64)[:, None] << 8 | fold).ravel()
        begins, ends = np.searchsorted(starts, pairs), np.searchsorted(starts, pairs, side="right")
        return cls(
            np.frombuffer(b"".join(ordered) or b"\0", np.uint8),
            np.concatenate(([0], np.cumsum([len(phrase) for phrase in ordered], dtype=np.int64))),
            np.array(numbers, np.int64),
            fold,
            may_begin.ravel(),
            begins.astype(np.uint16),
            (ends - begins).astype(np.uint16),
        )


@loop
def stands_at(data: Bytes, at: int, stop: int, phrases: Phrases, phrase: int) -> bool:
    """Does the phrase stand at `at`, before `stop`?"""
    start, length = phrases.offsets[phrase], phrases.offsets[phrase + 1] - phrases.offsets[phrase]
    same = 0
    while same < length and at + same < stop and phrases.fold[data[at + same]] == phrases.data[start + same]:
        same += 1
    return bool(same == length)


@loop
def next_place(data: Bytes, at: int, stop: int, may_begin: Marks) -> int:
    """The first position from `at` on where a phrase may begin, or `stop`."""
    if at + 2 > stop:
        return stop
    while at + 8 <= stop:  # six positions at once: the keys of the even ones in 16 bits each, and those of the odd ones
        block = load_8(data, at)
        first, second = block & FIVE_BITS, block >> EIGHT & FIVE_BITS
        even = first | second << np.uint64(5) | first >> np.uint64(6)
        odd = second | first >> np.uint64(11) | second >> np.uint64(6)
        found = False
        for shift in (0, 16, 32):
            found |= may_begin[even >> np.uint64(shift) & KEY] | may_begin[odd >> np.uint64(shift) & KEY]
        if found:
            while not may_begin[even & KEY]:
                even, odd = odd, even >> np.uint64(16)
                at += 1
            return at
        at += 6
    while at + 3 <= stop:
        key = (data[at] & 31) | (data[at + 1] & 31) << 5 | (data[at + 2] & 31) << 10
        if may_begin[key]:
            return at
        at += 1
    return at  # two bytes are left: a phrase of two may stand here


@loop
def find_phrases(data: Bytes, start: int, stop: int, phrases: Phrases) -> np.uint64:
    """Which of at most 64 phrases occur in data[start : stop], as bits by their number."""
    found = np.uint64(0)
    at = next_place(data, start, stop, phrases.may_begin)
    while at < stop:
        pair = np.uint64(data[at]) << np.uint64(8) | np.uint64(data[at + 1])
        first = np.int64(phrases.begins[pair])
        for phrase in range(first, first + np.int64(phrases.counts[pair])):
            if stands_at(data, at, stop, phrases, phrase):
                found |= np.uint64(1) << np.uint64(phrases.numbers[phrase])
        at = next_place(data, at + 1, stop, phrases.may_begin)
    return found
