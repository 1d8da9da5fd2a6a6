r"""Properties of characters for CPU kernels: a byte of flags for each code point, made from Python's own Unicode data.

    flags = character_flags()                # uint8, 0x110000 entries; made once a process, in about 0.1 s
    flags[code point] & SPACE                # the same answer as str.isspace

Invariant: SPACE, WORD, LETTER and UPPER agree with str.isspace, re's \w, str.isalpha and str.isupper of the running
Python at every code point; LINE_BREAK with str.splitlines; DIGIT with re's \d, the digits of every script, not ² or ½.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
from numpy.typing import NDArray

from ingot.data.native import loop

SPACE = 1  # str.isspace: what str.split splits at
WORD = 2  # \w of re: letters, digits, other numbers, underscore
LETTER = 4  # str.isalpha
UPPER = 8  # str.isupper
PLAIN = 16  # neither in SYMBOLS nor in TERMINALS: a word without any of these is a symbol for Gopher
TERMINAL = 32  # ends a sentence in some script
LINE_BREAK = 64  # what str.splitlines breaks at
NEWLINE = 128  # "\n" alone
DIGIT = 128  # of `letter_flags`: a decimal digit of any script

SYMBOLS = "!/—”:％１〈&(、━\\【#%「」，】；+^]~“《„';’{|∶´[=-`*．（–？！：$～«〉,><》)?）。…@_.\"}►»" + "".join(
    map(chr, (*range(9), *range(11, 32), *range(127, 160)))
)
"""Punctuation and control characters as CCNet and datatrove list them (the full-width digit one is in their lists)."""

TERMINALS = """
    21 2E 3F 589 61D-61F 6D4 700-702 7F9 837 839 83D-83E 964-965 104A-104B 1362 1367-1368 166E 1735-1736 17D4-17D6
    17D9-17DA 1803 1809 1944-1945 1AA8-1AAB 1B5A-1B5B 1B5E-1B5F 1B7D-1B7E 1C3B-1C3C 1C7E-1C7F 203C-203D 2047-2049
    2E2E 2E3C 2E53-2E54 3002 A4FF A60E-A60F A6F3 A6F7 A876-A877 A8CE-A8CF A92F A9C8-A9C9 AA5D-AA5F AAF0-AAF1 ABEB
    FE52 FE56-FE57 FF01 FF0E FF1F FF61 10A56-10A57 10F55-10F59 10F86-10F89 11047-11048 110BE-110C1 11141-11143
    111C5-111C6 111CD 111DE-111DF 11238-11239 1123B-1123C 112A9 1144B-1144C 115C2-115C3 115C9-115D7 11641-11642
    1173C-1173E 11944 11946 11A42-11A43 11A9B-11A9C 11C41-11C42 11EF7-11EF8 11F43-11F44 16A6E-16A6F 16AF5 16B37-16B38
    16B44 16E98 1BC9F 1DA88"""
"""Code points with the Unicode property Sentence_Terminal (which `unicodedata` does not have)."""

ASSIGNED = (range(0, 0xD800), range(0xE000, 0x40000), range(0xE0000, 0xE0200))
"""Where Unicode has characters; elsewhere are surrogates, private use and nothing."""


def _terminals() -> Iterator[int]:
    for entry in TERMINALS.split():
        first, _, last = entry.partition("-")
        yield from range(int(first, 16), int(last or first, 16) + 1)


@cache
def character_flags() -> NDArray[np.uint8]:
    """The flags of every code point."""
    flags = np.full(0x110000, PLAIN, np.uint8)
    for block in ASSIGNED:
        characters = list(map(chr, block))
        part = flags[block.start : block.stop]

        def put(flag: int, answers: Iterator[bool], part: NDArray[np.uint8] = part) -> None:
            part |= np.fromiter(answers, bool, len(part)).astype(np.uint8) * np.uint8(flag)

        put(SPACE, map(str.isspace, characters))
        put(WORD, map(str.isalnum, characters))
        put(LETTER, map(str.isalpha, characters))
        put(UPPER, map(str.isupper, characters))
    flags[ord("_")] |= WORD
    flags[[0x0A, 0x0B, 0x0C, 0x0D, 0x1C, 0x1D, 0x1E, 0x85, 0x2028, 0x2029]] |= LINE_BREAK
    flags[0x0A] |= NEWLINE
    terminals = list(_terminals())
    flags[terminals] |= TERMINAL
    flags[[*terminals, *map(ord, SYMBOLS)]] &= 0xFF ^ PLAIN
    flags.setflags(write=False)
    return flags


@loop
def width(first: np.uint8) -> int:
    """Bytes of the character that begins with this byte."""
    if first < 0x80:
        return 1
    if first < 0xE0:
        return 2
    if first < 0xF0:
        return 3
    return 4


@loop
def code_point(data: NDArray[np.uint8], at: int) -> int:
    """The character that begins at `at`; the bytes are valid UTF-8."""
    first = np.int64(data[at])
    point = first  # ASCII
    if first >= 0xF0:
        point = (
            (first & 0x07) << 18
            | (np.int64(data[at + 1]) & 0x3F) << 12
            | (np.int64(data[at + 2]) & 0x3F) << 6
            | (np.int64(data[at + 3]) & 0x3F)
        )
    elif first >= 0xE0:
        point = (first & 0x0F) << 12 | (np.int64(data[at + 1]) & 0x3F) << 6 | (np.int64(data[at + 2]) & 0x3F)
    elif first >= 0x80:
        point = (first & 0x1F) << 6 | (np.int64(data[at + 1]) & 0x3F)
    return int(point)


@loop
def pass_over(data: NDArray[np.uint8], at: int, stop: int, table: NDArray[np.uint8], mask: int, having: bool) -> int:
    """The first position from `at` on whose character has not (or has, if not `having`) one of the flags `mask`; or `stop`."""
    while at < stop and ((table[code_point(data, at)] & mask) != 0) == having:
        at += width(data[at])
    return at


@cache
def letter_flags() -> NDArray[np.uint8]:
    """The flags SPACE, WORD and DIGIT of every code point, for formulas and for the rules of code."""
    flags = character_flags() & np.uint8(SPACE | WORD)
    for block in ASSIGNED:
        digits = np.fromiter(map(str.isdecimal, map(chr, block)), bool, len(block))
        flags[block.start : block.stop] |= digits.astype(np.uint8) * np.uint8(DIGIT)
    return np.asarray(flags)
