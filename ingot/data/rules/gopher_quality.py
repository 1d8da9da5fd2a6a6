"""CPU kernels of the step `gopher_quality` (steps/gopher_quality.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ingot.data.native import Bytes, Hashes, Marks, Offsets, kernel, load_8, loop
from ingot.data.text.blocks import EIGHT, first_equal
from ingot.data.text.characters import LETTER, PLAIN
from ingot.data.text.spans import Spans
from ingot.data.text.white_space import strip

if TYPE_CHECKING:
    pass


@loop
def count_signs(data: Bytes, offsets: Offsets, hashes: Offsets, ellipses: Offsets) -> None:
    """`#`, and `...` or `…`, as str.count finds them: from the left, without overlap."""
    for text in range(len(offsets) - 1):
        dots = 0
        at, stop = np.uint64(offsets[text]), np.uint64(offsets[text + 1])
        while at < stop:
            if at + EIGHT <= stop and dots == 0:
                block = load_8(data, int(np.int64(at)))
                if not (
                    first_equal(block, np.uint64(0x2E))
                    | first_equal(block, np.uint64(0x23))
                    | first_equal(block, np.uint64(0xE2))
                ):
                    at += EIGHT
                    continue
            byte = data[at]
            dots = dots + 1 if byte == 0x2E else 0
            if dots == 3:
                ellipses[text] += 1
                dots = 0
            elif byte == 0x23:
                hashes[text] += 1
            elif byte == 0xE2 and data[at + np.uint64(1)] == 0x80 and data[at + np.uint64(2)] == 0xA6:
                ellipses[text] += 1
            at += np.uint64(1)


@loop
def look_at_lines(data: Bytes, lines: Spans, table: Bytes, bullets: Marks, trailing: Marks) -> None:
    """For each line whether it begins with a bullet and whether it ends in an ellipsis, white space apart."""
    for line in range(len(lines.starts)):
        at, end = strip(data, lines.starts[line], lines.ends[line], table)
        if at == end:
            continue
        byte = data[at]
        bullets[line] = byte == 0x2D or (byte == 0xE2 and data[at + 1] == 0x80 and data[at + 2] == 0xA2)
        if end - at >= 3:
            first, second, third = data[end - 3], data[end - 2], data[end - 1]
            trailing[line] = (first == 0x2E and second == 0x2E and third == 0x2E) or (
                first == 0xE2 and second == 0x80 and third == 0xA6
            )


@kernel
def count_words(
    words: Spans,
    wanted: Hashes,
    distinct: bool,
    plain: Offsets,
    plain_characters: Offsets,
    with_letter: Offsets,
    stop_words: Offsets,
) -> None:
    """Words that are not symbols alone and their characters, words with a letter, and words with a wanted hash (each hash
    once if `distinct`)."""
    flags, hashes = words.flags, words.hashes
    seen = np.empty(len(wanted), np.bool_)
    may_be = np.uint64(0)  # the last six bits of the wanted hashes: most words are passed over with one look
    for number in range(len(wanted)):
        may_be |= np.uint64(1) << (wanted[number] & np.uint64(63))
    for text in range(len(words.offsets) - 1):
        for number in range(len(wanted)):
            seen[number] = False
        for word in range(words.offsets[text], words.offsets[text + 1]):
            if flags[word] & PLAIN:
                plain[text] += 1
                plain_characters[text] += words.characters[word]
            with_letter[text] += (flags[word] & LETTER) != 0
            if not may_be >> (hashes[word] & np.uint64(63)) & np.uint64(1):
                continue
            for number in range(len(wanted)):
                if hashes[word] == wanted[number] and not (distinct and seen[number]):
                    seen[number] = True
                    stop_words[text] += 1
