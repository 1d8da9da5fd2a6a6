"""What a character is to the formulas here and to the rules for code: white space, part of a word, a digit.

Invariant: SPACE is str.isspace, WORD is re's \\w, DIGIT is re's \\d (the digits of every script, not ² or ½).
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from ingot.data.text.characters import ASSIGNED, SPACE, WORD, character_flags

DIGIT = 128


@cache
def letter_flags() -> NDArray[np.uint8]:
    """The flags SPACE, WORD and DIGIT of every code point."""
    flags = character_flags() & np.uint8(SPACE | WORD)
    for block in ASSIGNED:
        digits = np.fromiter(map(str.isdecimal, map(chr, block)), bool, len(block))
        flags[block.start : block.stop] |= digits.astype(np.uint8) * np.uint8(DIGIT)
    return np.asarray(flags)
