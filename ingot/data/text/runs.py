"""Runs of bytes that can hold what a regular expression looks for, so that it need not look at the whole text.

runs(texts, places, allowed)      the longest run of allowed bytes around each place, each run once
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ingot.data.native import Bytes, Marks, Offsets, loop
from ingot.data.text.texts import Texts


@loop
def _widen(data: Bytes, offsets: Offsets, places: Offsets, texts: Offsets, allowed: Marks, found: Offsets) -> int:
    """Write (text, start, end) of each run into `found`; the number of runs."""
    count = 0
    reached = 0  # the end of the last run
    for index in range(len(places)):
        start = places[index]
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


def runs(texts: Texts, places: NDArray[np.int64], allowed: bytes) -> NDArray[np.int64]:
    """Rows (text, start, end): the longest runs of `allowed` bytes around `places`, which are sorted and allowed."""
    table = np.zeros(256, bool)
    table[list(allowed)] = True
    found = np.empty((len(places), 3), np.int64)
    inside = np.searchsorted(texts.offsets, places, side="right") - 1
    return found[: _widen(texts.data, texts.offsets, places, inside, table, found)]


def places_of(texts: Texts, byte: bytes) -> NDArray[np.int64]:
    """Where a byte occurs in the texts."""
    first, last = int(texts.offsets[0]), int(texts.offsets[-1])
    return np.flatnonzero(texts.data[first:last] == byte[0]) + first


def digit_at(texts: Texts, places: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Is there a digit 0-9 at these places of the batch?"""
    inside = (places >= 0) & (places < len(texts.data))
    bytes_there = texts.data[np.where(inside, places, 0)]
    return np.asarray(inside & (bytes_there >= ord("0")) & (bytes_there <= ord("9")))
