"""Spans of texts (words, lines): where each begins and ends, its length, its characters' flags and its hash, in one pass.

Words are in words.py, lines and paragraphs in lines.py.

Invariant: span i of text d has offsets[d] <= i < offsets[d + 1]; spans are in order and do not overlap.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ingot.data.native import Bytes, Hashes, Offsets, Sizes, hash_span, loop
from ingot.data.text.characters import character_flags, code_point, width
from ingot.data.text.texts import Texts

SEED = np.uint64(0)


class Spans(NamedTuple):
    """Spans of all texts of a batch, end to end; bytes [start, end) of `Texts.data`. Kernels take it as it is."""

    starts: Offsets
    ends: Offsets
    characters: Sizes
    flags: Bytes  # the flags (text/characters.py) of all its characters together
    hashes: Hashes  # hash_span of its bytes, seed 0
    offsets: Offsets  # text d has the spans offsets[d] … offsets[d + 1] - 1

    def per_text(self) -> NDArray[np.int64]:
        """How many spans each text has."""
        return np.diff(self.offsets)

    def sums(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """For each text the sum of a value of its spans."""
        running = np.zeros(len(values) + 1, np.int64)
        np.cumsum(values, out=running[1:])
        return np.asarray(running[self.offsets[1:]] - running[self.offsets[:-1]])

    def select(self, keep: NDArray[np.bool_]) -> Spans:
        """Some of the spans."""
        chosen = np.flatnonzero(keep)
        return self._picked(chosen, np.searchsorted(chosen, self.offsets))

    def first(self, count: int) -> Spans:
        """The first spans: what is filled in of `empty_spans`."""
        return self._picked(slice(count), self.offsets)

    def _picked(self, which: Any, offsets: Offsets) -> Spans:
        columns = self.starts[which], self.ends[which], self.characters[which], self.flags[which], self.hashes[which]
        return Spans(*columns, offsets)


def empty_spans(most: int, texts: int) -> Spans:
    """Empty arrays for spans that a kernel fills in; pages that stay unused take no memory."""
    return Spans(
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(most, np.int32),
        np.empty(most, np.uint8),
        np.empty(most, np.uint64),
        np.zeros(texts + 1, np.int64),
    )


@loop
def _cut(data: Bytes, offsets: Offsets, table: Bytes, mask: np.uint8, spans: Spans) -> int:
    """Fill in the spans; the number of them."""
    count = 0
    for text in range(len(offsets) - 1):
        spans.offsets[text] = count
        at = np.uint64(offsets[text])  # unsigned: no index has to be looked at for being negative
        stop = np.uint64(offsets[text + 1])
        while at < stop:
            start = at
            seen = np.uint8(0)
            more = np.uint64(0)  # bytes beyond the first of each character
            step = np.uint64(0)
            while at < stop:
                first = data[at]
                step = np.uint64(1)
                if first < 0x80:
                    found = table[first]
                else:
                    found = table[code_point(data, int(np.int64(at)))]
                    step = np.uint64(width(first))
                if not found & mask:
                    break
                seen |= found
                more += step - np.uint64(1)
                at += step
            if at > start:
                spans.starts[count] = start
                spans.ends[count] = at
                spans.characters[count] = at - start - more
                spans.flags[count] = seen
                spans.hashes[count] = hash_span(data, int(np.int64(start)), int(np.int64(at)), SEED)
                count += 1
            if at < stop:
                at += step
    spans.offsets[len(offsets) - 1] = count
    return count


def cut(texts: Texts, mask: int) -> Spans:
    """The spans of every text: the longest runs of characters that have one of the flags `mask`."""
    spans = empty_spans(texts.bytes // 2 + len(texts), len(texts))
    count = _cut(texts.data, texts.offsets, character_flags(), np.uint8(mask), spans)
    return spans.first(count)


@loop
def copy_span(data: Bytes, start: int, stop: int, result: Bytes, size: int) -> int:
    """Append data[start : stop] to the first `size` bytes of `result`; the new size."""
    source, target = data[start:stop], result[size : size + stop - start]
    for at in range(len(source)):  # over slices the compiler copies many bytes at a time
        target[at] = source[at]
    return size + stop - start


class LastBatch:
    """Remembers the spans of the last few columns, so that rules that follow each other cut a batch once.

    A column is known by the address of its bytes; the entry keeps them alive, so that no other column gets that address.
    """

    def __init__(self, size: int = 3) -> None:
        self.size = size
        self.entries: OrderedDict[tuple[int, str], tuple[Texts, Spans]] = OrderedDict()

    def find(self, texts: Texts, kind: str) -> Spans | None:
        """The spans of these texts, if they are remembered."""
        entry = self.entries.get((texts.data.ctypes.data, kind))
        return entry[1] if entry and np.array_equal(entry[0].offsets, texts.offsets) else None

    def keep(self, texts: Texts, kind: str, spans: Spans) -> Spans:
        """Remember the spans, and forget the oldest."""
        self.entries[texts.data.ctypes.data, kind] = (texts, spans)
        while len(self.entries) > self.size:
            self.entries.popitem(last=False)
        return spans
