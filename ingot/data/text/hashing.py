"""128-bit hashes of texts and of spans of them, and the grouping of equal ones, for exact deduplication.

A hash is two 64-bit words from different seeds. For n different texts the chance that any two share both is about
n² / 2^129: 10^-19 for 10^10 lines. `loose` hashes the text in lower case with every run of white space as one space
(str.lower and str.split, character by character: a character whose lower case is several keeps itself).

Invariant: `first_equal` gives for each hash the index of the first equal one, whatever the size of its table.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from ingot.data.native import PRIME_1, Bytes, Hashes, Offsets, Words, finish, join, kernel, load_8, load_last, loop
from ingot.data.text.characters import code_point, width

SEED_HIGH, SEED_LOW = np.uint64(0x243F6A8885A308D3), np.uint64(0x13198A2E03707344)  # digits of pi

BLANK, ONES, HIGH_BITS = np.uint64(32), np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
LAST_CASED = 0x20000  # no character above has a lower case or is white space


@cache
def loose_characters() -> Words:
    """For each code point its lower case, white space as a blank."""
    table = np.arange(0x110000, dtype=np.uint32)
    for code in range(LAST_CASED):
        character = chr(code)
        lower = character.lower()
        if character.isspace():
            table[code] = 32
        elif lower != character and len(lower) == 1:
            table[code] = ord(lower)
    return table


@loop
def loosen(data: Bytes, at: int, stop: int, table: Words, loose: Bytes) -> int:
    """Write [at, stop) in lower case with every run of white space as one blank, none at the ends; the number of bytes.

    Eight bytes at a time where all are ASCII, none a control character, and no blank follows a blank. A character that
    is not ASCII is written as three bytes with the high bit set, whatever its UTF-8: no two texts give the same bytes.
    """
    size, after_blank = 0, True
    while at < stop:
        if at + 8 <= stop:
            word = load_8(data, at)
            blanks = word ^ (BLANK * ONES)  # a blank becomes zero, and then its high bit is set
            blanks = ~(((blanks & ~HIGH_BITS) + ~HIGH_BITS) | blanks | ~HIGH_BITS)
            printable = (word & HIGH_BITS) == 0 and ((word | HIGH_BITS) - BLANK * ONES) & HIGH_BITS == HIGH_BITS
            if printable and not blanks & (blanks << np.uint64(8)) and not (after_blank and blanks & np.uint64(0x80)):
                capital = (word + np.uint64(0x3F) * ONES) & ~(word + np.uint64(0x25) * ONES) & HIGH_BITS  # A to Z
                word |= capital >> np.uint64(2)
                eight = loose[size : size + 8]
                for index in range(8):
                    eight[index] = np.uint8(word >> np.uint64(8 * index))
                size += 8
                at += 8
                after_blank = blanks >> np.uint64(63) != 0
                continue
        first = data[at]
        character = table[code_point(data, at)]
        at += width(first)
        if character == 32:
            if not after_blank:
                loose[size] = 32
                size += 1
            after_blank = True
            continue
        after_blank = False
        if character < 0x80:
            loose[size] = character
            size += 1
        else:
            loose[size] = 0x80 | character >> 14
            loose[size + 1] = 0x80 | (character >> 7 & 0x7F)
            loose[size + 2] = 0x80 | (character & 0x7F)
            size += 3
    return size - 1 if size and after_blank else size


@loop
def hash_both(data: Bytes, start: int, end: int) -> tuple[np.uint64, np.uint64]:
    """`hash_span` of [start, end) with both seeds, in one pass: the processor runs the two chains of multiplications at once."""
    size = np.uint64(end - start) * PRIME_1
    high, low = SEED_HIGH ^ size, SEED_LOW ^ size
    at = start
    while at + 8 <= end:
        word = load_8(data, at)
        high, low = join(high, word), join(low, word)
        at += 8
    if at < end:
        word = load_last(data, at, end)
        high, low = join(high, word), join(low, word)
    return finish(high), finish(low)


@loop
def _hash_spans(
    data: Bytes, starts: Offsets, ends: Offsets, table: Words, exact: bool, loose: Bytes, high: Hashes, low: Hashes
) -> None:
    for span in range(len(starts)):
        if exact:
            high[span], low[span] = hash_both(data, starts[span], ends[span])
        else:
            high[span], low[span] = hash_both(loose, 0, loosen(data, starts[span], ends[span], table, loose))


def hash_spans(data: Bytes, starts: Offsets, ends: Offsets, *, exact: bool) -> tuple[Hashes, Hashes]:
    """Both hashes of the spans [start, end) of `data`."""
    longest = int((ends - starts).max(initial=0))
    loose = np.empty(0 if exact else 2 * longest + 8, np.uint8)
    high, low = np.empty(len(starts), np.uint64), np.empty(len(starts), np.uint64)
    _hash_spans(data, starts, ends, loose_characters(), exact, loose, high, low)
    return high, low


@kernel
def first_equal(high: Hashes, low: Hashes) -> Offsets:
    """For each 128-bit hash the index of the first that equals it (its own if it is the first)."""
    size = 16
    while size < 2 * len(high):
        size *= 2
    mask = np.uint64(size - 1)
    table = np.full(size, -1, np.int64)
    found = np.empty(len(high), np.int64)
    for index in range(len(high)):
        slot = low[index] & mask
        while True:
            other = table[slot]
            if other < 0:
                table[slot] = found[index] = index
                break
            if high[other] == high[index] and low[other] == low[index]:
                found[index] = other
                break
            slot = (slot + np.uint64(1)) & mask
    return found
