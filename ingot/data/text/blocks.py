"""Tests on eight bytes at a time, as one 64-bit word, for the ASCII that most text consists of.

A test answers with the highest bit of each byte. `load_8` puts the first byte of the text into the lowest bits, so that
the lowest bit of an answer is the first position. Tests of ranges hold for bytes below 0x80: ask `others` first.
"""

from __future__ import annotations

import numpy as np

from ingot.data.native import loop

ONES = np.uint64(0x0101010101010101)
HIGH = np.uint64(0x8080808080808080)
EIGHT = np.uint64(8)


@loop
def others(block: np.uint64) -> np.uint64:
    """The bytes that are not ASCII."""
    return block & HIGH


@loop
def between(block: np.uint64, low: np.uint64, high: np.uint64) -> np.uint64:
    """The bytes from `low` to `high`, both included; all bytes of the block are ASCII, and `high` is below 0x7F."""
    return (block + (np.uint64(0x80) - low) * ONES) & ~(block + (np.uint64(0x7F) - high) * ONES) & HIGH


@loop
def spaces(block: np.uint64) -> np.uint64:
    """White space as in str.split; all bytes of the block are ASCII."""
    return between(block, np.uint64(0x09), np.uint64(0x0D)) | between(block, np.uint64(0x1C), np.uint64(0x20))


@loop
def first_equal(block: np.uint64, byte: np.uint64) -> np.uint64:
    """Bytes equal to `byte`, exact up to the first one; for any block."""
    difference = block ^ byte * ONES
    return (difference - ONES) & ~difference & HIGH


@loop
def before_first(answer: np.uint64) -> np.uint64:
    """All bits of the bytes before the first one that an answer names (which names one)."""
    return (answer ^ (answer - np.uint64(1))) >> EIGHT


@loop
def count_named(answer: np.uint64) -> np.uint64:
    """How many bytes an answer names."""
    return ((answer & HIGH) >> np.uint64(7)) * ONES >> np.uint64(56)


@loop
def continuations(block: np.uint64) -> np.uint64:
    """The bytes of UTF-8 that continue a character."""
    return block & ~(block << np.uint64(1)) & HIGH
