"""CPU kernels of the step `newlines` (steps/newlines.py)."""

from __future__ import annotations

from ingot.data.native import loop
from ingot.data.text.arrays import Bytes, Places
from ingot.data.text.lines import next_newline
from ingot.data.text.spans import copy_span


@loop
def shorten(data: Bytes, offsets: Places, most: int, result: Bytes, result_offsets: Places) -> int:
    """Write the texts without the newlines beyond `most` in a row; the number of bytes."""
    size = 0
    for text in range(len(offsets) - 1):
        result_offsets[text] = size
        start, stop = offsets[text], offsets[text + 1]
        at = start
        while at < stop:
            at, _ = next_newline(data, at, stop)
            first = at
            while at < stop and data[at] == 0x0A:
                at += 1
            if at - first > most:
                size = copy_span(data, start, first + most, result, size)
                start = at
        size = copy_span(data, start, stop, result, size)
    result_offsets[len(offsets) - 1] = size
    return size
