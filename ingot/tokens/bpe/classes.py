"""The character classes that the regular expressions of tokenizers distinguish.

`classes.txt` in this folder has a line `first-code-point class` for each run of characters of one class: the general
categories of Unicode 16 and its white space, which is what the regular expressions of tokenizers 0.23 and tiktoken 0.14
know (a test asks both about every code point). Python's `unicodedata` is older or newer, by its version, and takes
U+001C to U+001F for blanks, which the two do not; so it is not used.

Invariant: a class is one bit, so that a set of classes is a sum, and a kernel tests `class & set`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

OTHER = 1  # signs, symbols, control characters, unassigned
UPPER = 2  # Lu, Lt
LOWER = 4  # Ll
LETTER = 8  # Lm, Lo: letters without case
MARK = 16  # M
NUMBER = 32  # N
LATER_NUMBER = 64  # N since Unicode 17: a number for `Digits`, which asks Rust itself; unassigned for the expressions
BLANK = 128  # white space but the line ends
LINE_END = 256  # \r \n

NAMES = {
    "other": OTHER,
    "upper": UPPER,
    "lower": LOWER,
    "letter": LETTER,
    "mark": MARK,
    "number": NUMBER,
    "later_number": LATER_NUMBER,
    "blank": BLANK,
    "line_end": LINE_END,
}
CODE_POINTS = 0x110000
FILE = Path(__file__).with_name("classes.txt")


@cache
def character_classes() -> NDArray[np.uint16]:
    """The class of each code point."""
    runs = [line.split() for line in FILE.read_text(encoding="ascii").splitlines()]
    starts = [int(start, 16) for start, _ in runs] + [CODE_POINTS]
    kinds = np.array([NAMES[name] for _, name in runs], np.uint16)
    table = np.repeat(kinds, np.diff(starts))
    table.flags.writeable = False
    return table
