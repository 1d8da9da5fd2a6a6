"""Counts sentences: a sentence is a part of re.split(r"[.!?]+\\s+", text) that is not blank.

This is the definition of datamap-rs (OLMo 3). It needs no model, counts abbreviations as ends, and knows no other
scripts; rules that use it compare with small numbers only.
"""

from __future__ import annotations

import numpy as np

from ingot.data.native import Bytes, load_8, loop
from ingot.data.text.blocks import first_equal
from ingot.data.text.characters import SPACE, pass_over
from ingot.data.text.white_space import blank


@loop
def sentence_end(data: Bytes, at: int, stop: int, table: Bytes) -> tuple[int, int]:
    """Where the sentence that begins at `at` ends and where the next one begins; both `stop` for the last one."""
    while at < stop:
        if at + 8 <= stop:
            block = load_8(data, at)
            if not (
                first_equal(block, np.uint64(0x2E))
                | first_equal(block, np.uint64(0x21))
                | first_equal(block, np.uint64(0x3F))
            ):
                at += 8
                continue
        byte = data[at]
        if byte != 0x2E and byte != 0x21 and byte != 0x3F:
            at += 1  # also inside a character: its bytes are above 0x7F
            continue
        end = at
        while at < stop and (data[at] == 0x2E or data[at] == 0x21 or data[at] == 0x3F):
            at += 1
        after = at
        at = pass_over(data, at, stop, table, SPACE, True)
        if at > after:
            return end, at
    return stop, stop


@loop
def count_sentences(data: Bytes, start: int, stop: int, table: Bytes) -> int:
    """The number of sentences."""
    count = 0
    while start < stop:
        end, after = sentence_end(data, start, stop, table)
        if not blank(data, start, end, table):
            count += 1
        start = after
    return count
