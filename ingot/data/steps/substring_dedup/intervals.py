"""Cuts the struck bytes out of texts: union of intervals, coverage, whole characters.

Coverage (Olmo 3's "fuzzy" merge): go through the disjoint intervals of a document and swallow the next one into the
last whenever

    struck bytes of both / length of their hull  >=  coverage,

once from the front and once from the back (the two differ: a long interval can carry short ones on its far side only
in the direction in which it comes first); the union of both passes is cut.

A cut never breaks a character: an interval that begins or ends inside one is shortened to whole characters.

Invariant: intervals are sorted, disjoint, and each lies inside one document.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingot.data.native import kernel
from ingot.data.text.texts import Texts
from ingot.workspace.errors import CheckFailed

Intervals = NDArray[np.int64]  # (n, 2): bytes [start, end) from the beginning of the first text


def documents_of(intervals: Intervals, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """The document of each interval; an interval that is in none, or in two, is a bug and is said so."""
    documents = np.searchsorted(offsets, intervals[:, 0], side="right") - 1
    inside = (documents >= 0) & (documents < len(offsets) - 1) & (intervals[:, 0] < intervals[:, 1])
    if not (inside.all() and (intervals[:, 1] <= offsets[documents + 1]).all()):
        raise CheckFailed("a struck interval does not lie inside a document", place="substring_dedup")
    return documents


def union(intervals: Intervals, offsets: NDArray[np.int64]) -> Intervals:
    """The same bytes as sorted, disjoint intervals; those of different documents stay apart even where they touch."""
    if not len(intervals):
        return intervals.reshape(0, 2)
    intervals = intervals[np.lexsort((intervals[:, 1], intervals[:, 0]))]
    documents = documents_of(intervals, offsets)
    reach = np.maximum.accumulate(intervals[:, 1])
    new = np.ones(len(intervals), bool)
    new[1:] = (intervals[1:, 0] > reach[:-1]) | (documents[1:] != documents[:-1])
    firsts = np.flatnonzero(new)
    return np.stack([intervals[firsts, 0], np.maximum.reduceat(intervals[:, 1], firsts)], axis=1)


@kernel
def _swallow(intervals: np.ndarray, documents: np.ndarray, coverage: float, rows: np.ndarray) -> np.ndarray:
    """The intervals after one pass in the order `rows`."""
    merged = np.empty_like(intervals)
    count = 0
    document = np.int64(-1)
    struck = 0
    for row in rows:
        start, end = intervals[row, 0], intervals[row, 1]
        if documents[row] == document:
            low, high = min(start, merged[count - 1, 0]), max(end, merged[count - 1, 1])
            if struck + end - start >= (high - low) * coverage:
                merged[count - 1, 0], merged[count - 1, 1] = low, high
                struck += end - start
                continue
        merged[count, 0], merged[count, 1] = start, end
        count += 1
        struck, document = end - start, documents[row]
    return merged[:count]


def cover(intervals: Intervals, offsets: NDArray[np.int64], coverage: float) -> Intervals:
    """Fill the gaps of stretches that are struck to at least `coverage` already. Takes and gives disjoint intervals."""
    if coverage >= 1 or not len(intervals):
        return intervals
    documents = documents_of(intervals, offsets)
    rows = np.arange(len(intervals))
    passes = [_swallow(intervals, documents, coverage, order) for order in (rows, rows[::-1].copy())]
    return union(np.concatenate(passes), offsets)


@dataclass(frozen=True)
class CutTexts:
    """Texts after the cut; `spans` are characters [start, end) of the old texts, of `documents`."""

    texts: Texts
    spans: Intervals
    documents: NDArray[np.int64]
    bytes: NDArray[np.int64]  # removed, by text


@kernel
def _cut(
    data: np.ndarray,
    offsets: np.ndarray,
    intervals: np.ndarray,
    documents: np.ndarray,
    out: np.ndarray,
    out_offsets: np.ndarray,
    spans: np.ndarray,
    whole: np.ndarray,
) -> int:
    """Copy what stays and say how much it is; `whole`: which intervals hold at least one whole character."""
    size = 0
    next_one = 0
    for text in range(len(offsets) - 1):
        at = offsets[text]
        characters = 0
        while next_one < len(intervals) and documents[next_one] == text:
            start, end = intervals[next_one, 0], intervals[next_one, 1]
            while start < end and data[start] & 0xC0 == 0x80:
                start += 1
            if end < offsets[text + 1]:
                while end > start and data[end] & 0xC0 == 0x80:
                    end -= 1
            for index in range(at, start):
                characters += data[index] & 0xC0 != 0x80
                out[size] = data[index]
                size += 1
            spans[next_one, 0] = characters
            for index in range(start, end):
                characters += data[index] & 0xC0 != 0x80
            spans[next_one, 1] = characters
            whole[next_one] = start < end
            at = end
            next_one += 1
        for index in range(at, offsets[text + 1]):
            out[size] = data[index]
            size += 1
        out_offsets[text + 1] = size
    return size


def cut(texts: Texts, intervals: Intervals) -> CutTexts:
    """The texts without the intervals."""
    data, offsets = texts.data[texts.offsets[0] :], texts.offsets - texts.offsets[0]
    documents = documents_of(intervals, offsets)
    out, out_offsets = np.empty(texts.bytes, np.uint8), np.zeros(len(offsets), np.int64)
    spans, whole = np.zeros((len(intervals), 2), np.int64), np.zeros(len(intervals), bool)
    size = _cut(data, offsets, intervals, documents, out, out_offsets, spans, whole)
    removed = np.diff(offsets) - np.diff(out_offsets)
    return CutTexts(Texts(out[:size], out_offsets), spans[whole], documents[whole], removed)
