"""White space in a span of text: as str.strip, str.isspace and the number of words of str.split."""

from __future__ import annotations

import numpy as np

from ingot.data.native import Bytes, load_8, loop
from ingot.data.text.blocks import EIGHT, HIGH, ONES, count_named, others, spaces
from ingot.data.text.characters import SPACE, code_point, pass_over, width


@loop
def blank(data: Bytes, at: int, stop: int, table: Bytes) -> bool:
    """Is there nothing but white space?"""
    return pass_over(data, at, stop, table, SPACE, True) == stop


@loop
def strip(data: Bytes, start: int, stop: int, table: Bytes) -> tuple[int, int]:
    """Where the text begins and ends without the white space around it."""
    start = pass_over(data, start, stop, table, SPACE, True)
    while start < stop:
        last = stop - 1
        while data[last] & 0xC0 == 0x80:
            last -= 1
        if (table[code_point(data, last)] & SPACE) == 0:
            break
        stop = last
    return start, stop


@loop
def count_words(data: Bytes, start: int, stop: int, table: Bytes) -> int:
    """The number of white-space words."""
    words = np.uint64(0)
    before = np.uint64(0)  # 1 after a character that is not white space
    at, end = np.uint64(start), np.uint64(stop)
    while at < end:
        if at + EIGHT <= np.uint64(len(data)):
            block = load_8(data, int(np.int64(at)))
            if end - at < EIGHT:  # what is behind the span becomes white space
                behind = ~np.uint64(0) << (end - at) * EIGHT
                block = block & ~behind | np.uint64(0x20) * ONES & behind
            if not others(block):
                inside = ~spaces(block) & HIGH
                words += count_named(inside & ~(inside << EIGHT | before << np.uint64(7)))
                before = inside >> np.uint64(63)
                at += EIGHT
                continue
        inside = np.uint64((table[code_point(data, int(np.int64(at)))] & SPACE) == 0)
        words += inside & ~before
        before = inside
        at += np.uint64(width(data[at]))
    return int(np.int64(words))


@loop
def longest_word(data: Bytes, at: int, stop: int, table: Bytes) -> int:
    """The characters of the longest white-space word."""
    longest = length = 0
    while at < stop:
        length = 0 if table[code_point(data, at)] & SPACE else length + 1
        longest = max(longest, length)
        at += width(data[at])
    return longest
