"""Finds runs of bytes that can hold what a regular expression looks for, so that it need not look at the whole text.

runs(texts, positions, allowed)      the longest run of allowed bytes around each position, each run once
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ingot.data.native import Bytes, Marks, Offsets, loop
from ingot.data.text.texts import Texts


@loop
def _widen(data: Bytes, offsets: Offsets, positions: Offsets, texts: Offsets, allowed: Marks, found: Offsets) -> int:
    """Write (text, start, end) of each run into `found`; the number of runs."""
    count = 0
    reached = 0  # the end of the last run
    for index in range(len(positions)):
        start = positions[index]
        if start < reached:
            continue
        first, last = offsets[texts[index]], offsets[texts[index] + 1]
        reached = start
        while start > first and allowed[data[start - 1]]:
            start -= 1
        while reached < last and allowed[data[reached]]:
            reached += 1
        found[count, 0] = texts[index]
        found[count, 1] = start
        found[count, 2] = reached
        count += 1
    return count


def runs(texts: Texts, positions: NDArray[np.int64], allowed: bytes) -> NDArray[np.int64]:
    """Rows (text, start, end): the longest runs of `allowed` bytes around `positions`, which are sorted and allowed."""
    table = np.zeros(256, bool)
    table[list(allowed)] = True
    found = np.empty((len(positions), 3), np.int64)
    inside = np.searchsorted(texts.offsets, positions, side="right") - 1
    return found[: _widen(texts.data, texts.offsets, positions, inside, table, found)]


def positions_of(texts: Texts, byte: bytes) -> NDArray[np.int64]:
    """Where a byte occurs in the texts."""
    first, last = int(texts.offsets[0]), int(texts.offsets[-1])
    return np.flatnonzero(texts.data[first:last] == byte[0]) + first


def digit_at(texts: Texts, positions: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Is there a digit 0-9 at these positions of the batch?"""
    inside = (positions >= 0) & (positions < len(texts.data))
    bytes_there = texts.data[np.where(inside, positions, 0)]
    return np.asarray(inside & (bytes_there >= ord("0")) & (bytes_there <= ord("9")))
