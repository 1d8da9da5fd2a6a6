"""CPU kernels of the step `fineweb` (steps/fineweb.py)."""

from __future__ import annotations

from ingot.data.native import loop
from ingot.data.text.arrays import Bytes, Marks, Places
from ingot.data.text.characters import TERMINAL, code_point
from ingot.data.text.white_space import blank


@loop
def look_at_lines(data: Bytes, starts: Places, ends: Places, table: Bytes, blanks: Marks, punctuated: Marks) -> None:
    """For each line whether it is blank and whether its last character ends a sentence."""
    for line in range(len(starts)):
        blanks[line] = blank(data, starts[line], ends[line], table)
        if not blanks[line]:
            last = ends[line] - 1
            while data[last] & 0xC0 == 0x80:
                last -= 1
            punctuated[line] = (table[code_point(data, last)] & TERMINAL) != 0
