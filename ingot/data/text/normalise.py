"""Normalises texts before they are compared: copies that differ in case, punctuation, numbers or accents become equal.

    lower case        str.lower, character by character (capital sigma always becomes σ, never ς)
    numbers           a run of digits of any script, with at most one decimal part, becomes 0
    punctuation       each of the listed characters becomes a space
    white space       every run becomes one space, none at the ends
    accents           canonical decomposition (NFD), then marks (category Mn) are dropped

With all of them on, this is what datatrove (`simplify_text`) and FineWeb hash for MinHash, up to runs of white space and
the final sigma. Each character has its replacement in a table, so the text is read once.

Invariant: words of the result are separated by exactly one space; a text of nothing but separators becomes empty.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ingot.data.native import Bytes, Marks, Offsets, Sizes, loop
from ingot.data.text.characters import ASSIGNED, SPACE, SYMBOLS, character_flags, code_point, width
from ingot.data.text.texts import Texts

SAME, SEPARATOR, NUMBER = -1, -2, -3  # entries of the table that are not offsets in the pool
DECIMAL_MARKS = ".,،٫⎖⎗⎘"


@dataclass(frozen=True)
class Normal:
    """What is made alike."""

    lower: bool = True
    numbers: bool = True
    punctuation: str = SYMBOLS
    accents: bool = True


@cache
def _table(normal: Normal) -> tuple[NDArray[np.int32], NDArray[np.uint8], NDArray[np.bool_]]:
    """For each code point SAME, SEPARATOR, NUMBER or the offset of its replacement in the pool (length, then bytes); the
    pool; which code points are decimal marks."""
    flags = character_flags()
    table = np.full(0x110000, SAME, np.int32)
    pool = bytearray()
    for block in ASSIGNED:
        characters = list(map(chr, block))
        replaced = list(map(str.lower, characters)) if normal.lower else characters
        if normal.accents:
            replaced = [unicodedata.normalize("NFD", text) for text in replaced]
        kinds = map(unicodedata.category, characters)
        for point, (before, after, kind) in enumerate(zip(characters, replaced, kinds, strict=True), block.start):
            if before == after and kind != "Mn":
                continue  # nearly all of them
            if normal.accents:
                after = "".join(part for part in after if unicodedata.category(part) != "Mn")
            if before != after:
                table[point] = len(pool)
                encoded = after.encode()
                pool += bytes([len(encoded)]) + encoded
    table[flags & SPACE != 0] = SEPARATOR
    table[[ord(mark) for mark in normal.punctuation]] = SEPARATOR
    if normal.numbers:
        for block in ASSIGNED:
            decimal = np.fromiter(map(str.isdecimal, map(chr, block)), bool, len(block))
            table[block.start : block.stop][decimal] = NUMBER
    marks = np.zeros(0x110000, bool)
    marks[[ord(mark) for mark in DECIMAL_MARKS]] = True
    return table, np.frombuffer(bytes(pool) or b"\0", np.uint8), marks


@loop
def _digits_end(data: Bytes, at: int, stop: int, table: Sizes) -> int:
    """Where the run of digits that begins at `at` ends."""
    while at < stop and table[code_point(data, at)] == NUMBER:
        at += width(data[at])
    return at


@loop
def _normalise(
    data: Bytes, offsets: Offsets, table: Sizes, pool: Bytes, marks: Marks, result: Bytes, result_offsets: Offsets
) -> int:
    """Write the normalised texts; the number of bytes."""
    size = 0
    for text in range(len(offsets) - 1):
        begin = result_offsets[text] = size
        at, stop = offsets[text], offsets[text + 1]
        space = False  # a separator was seen: a space is due before the next character
        while at < stop:
            point = code_point(data, at)
            entry = table[point]
            step = width(data[at])
            if entry == SEPARATOR:
                space = True
                at += step
                continue
            if entry >= 0 and pool[entry] == 0:  # a mark that is dropped
                at += step
                continue
            if space and size > begin:
                result[size] = 0x20
                size += 1
            space = False
            if entry == SAME:
                for index in range(step):
                    result[size + index] = data[at + index]
                size += step
                at += step
            elif entry == NUMBER:
                result[size] = 0x30
                size += 1
                at = _digits_end(data, at, stop, table)
                if at < stop and marks[code_point(data, at)]:
                    after = at + width(data[at])
                    end = _digits_end(data, after, stop, table)
                    if end > after:
                        at = end
            else:
                length = pool[entry]
                for index in range(length):
                    result[size + index] = pool[entry + 1 + index]
                size += length
                at += step
    result_offsets[len(offsets) - 1] = size
    return size


def normalise(texts: Texts, normal: Normal = Normal()) -> Texts:  # noqa: B008 - a frozen default
    """The texts made alike."""
    result = np.empty(3 * texts.bytes, np.uint8)  # no character grows more: a Hangul syllable becomes three jamo
    offsets = np.zeros(len(texts) + 1, np.int64)
    size = _normalise(texts.data, texts.offsets, *_table(normal), result, offsets)
    return Texts(result[:size].copy(), offsets)
