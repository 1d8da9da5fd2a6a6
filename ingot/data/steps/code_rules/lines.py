"""Counts what the rules for code need, in one pass over a source file.

Counts of a text, by column of the result:
    WORDS                  whitespace words
    CHARACTERS, ALNUM      all characters; letters and digits of any script
    LINES, LONGEST         lines (split at "\\n"), and the characters of the longest
    FILLED, DATA           lines that are not blank; those that hold literals and nothing else

A data line is found in three moves, as one would with regular expressions: quoted strings with their prefixes are
blanked (everywhere, also behind `#`), what follows `#` is cut, numbers and None, True, False are struck; the line is
data if something was a literal and no letter or underscore is left. A line with triple quotes is none.
"""

from __future__ import annotations

import numpy as np

from ingot.data.native import Bytes, Offsets, Sizes, kernel
from ingot.data.text.characters import DIGIT, SPACE, WORD, code_point, letter_flags, width
from ingot.data.text.texts import Texts

WORDS, CHARACTERS, ALNUM, LINES, LONGEST, FILLED, DATA = range(7)
BLANK, UNDERSCORE = 32, 95


@kernel
def is_prefix(letter: int) -> bool:
    """True for r, b and u, which may stand before a quote."""
    lower = letter | 32
    return lower == 114 or lower == 98 or lower == 117


@kernel
def is_hexadecimal(letter: int) -> bool:
    """0-9, a-f, A-F and _."""
    return 48 <= letter <= 57 or 97 <= (letter | 32) <= 102 or letter == UNDERSCORE


@kernel
def has_triple_quotes(line: Sizes, length: int) -> bool:
    """True if three equal quotes stand together anywhere."""
    for at in range(length - 2):
        letter = line[at]
        if (letter == 34 or letter == 39) and line[at + 1] == letter and line[at + 2] == letter:
            return True
    return False


@kernel
def blank_strings(line: Sizes, length: int, rest: Sizes) -> int:
    """Copy the line with every closed string as one blank; returns the new length."""
    size = kept_from = at = 0
    while at < length:
        letter = line[at]
        if letter != 34 and letter != 39:
            rest[size] = letter
            size += 1
            at += 1
            continue
        stop = at + 1
        while stop < length and line[stop] != letter:
            stop += 2 if line[stop] == 92 else 1
        if stop >= length:  # not closed: an ordinary character
            rest[size] = letter
            size += 1
            at += 1
            continue
        for _ in range(2):
            if size > kept_from and is_prefix(rest[size - 1]):
                size -= 1
        rest[size] = BLANK
        size += 1
        kept_from = size
        at = stop + 1
    return size


@kernel
def same_name(rest: Sizes, at: int, length: int) -> int:
    """The length of None, True or False if it stands at `at` and the word ends behind it, else 0."""
    for name in ((78, 111, 110, 101, 0), (84, 114, 117, 101, 0), (70, 97, 108, 115, 101)):
        size = 5 if name[4] else 4
        if at + size > length:
            continue
        same = True
        for index in range(size):
            same &= rest[at + index] == name[index]
        if same:
            return size
    return 0


@kernel
def number_end(rest: Sizes, at: int, length: int, flags: Bytes) -> int:
    """Where the number that begins at `at` ends."""
    if rest[at] == 48 and at + 2 < length and (rest[at + 1] == 120 or rest[at + 1] == 111 or rest[at + 1] == 98):
        stop = at + 2
        while stop < length and is_hexadecimal(rest[stop]):
            stop += 1
        if stop > at + 2:
            return stop
    stop = at + 1
    while stop < length and (flags[rest[stop]] & DIGIT or rest[stop] == UNDERSCORE):
        stop += 1
    if stop < length and rest[stop] == 46:
        stop += 1
        while stop < length and flags[rest[stop]] & DIGIT:
            stop += 1
    if stop < length and (rest[stop] | 32) == 101:  # an exponent, if digits follow
        digits = stop + 1
        if digits < length and (rest[digits] == 43 or rest[digits] == 45):
            digits += 1
        last = digits
        while last < length and flags[rest[last]] & DIGIT:
            last += 1
        if last > digits:
            stop = last
    if stop < length and (rest[stop] | 32) == 106:
        stop += 1
    return stop


@kernel
def is_data_line(line: Sizes, length: int, rest: Sizes, flags: Bytes) -> bool:
    """True if the line holds literals and nothing else. `rest` is a buffer for a copy."""
    if has_triple_quotes(line, length):
        return False
    size = blank_strings(line, length, rest)
    literal = size < length
    at, in_word = 0, False
    while at < size and rest[at] != 35:
        flag = flags[rest[at]]
        if not flag & WORD:
            in_word = False
            at += 1
            continue
        if not in_word and flag & DIGIT:
            at = number_end(rest, at, size, flags)
            literal = True
            in_word = bool(flags[rest[at - 1]] & WORD)
            continue
        if not flag & DIGIT:  # a letter: only None, True and False may stand here
            name = 0 if in_word else same_name(rest, at, size)
            if name == 0 or (at + name < size and flags[rest[at + name]] & WORD):
                return False
            literal = True
            at += name
            in_word = True
            continue
        at += 1  # a digit inside a word
    return literal


@kernel
def longest_of(data: Bytes, offsets: Offsets) -> int:
    """The bytes of the longest line of all texts."""
    longest = 0
    for text in range(len(offsets) - 1):
        begin = offsets[text]
        for at in range(offsets[text], offsets[text + 1]):
            if data[at] == 10:
                longest = max(longest, at - begin)
                begin = at + 1
        longest = max(longest, offsets[text + 1] - begin)
    return longest


@kernel
def count_all(data: Bytes, offsets: Offsets, flags: Bytes, counts: Offsets) -> None:
    """The counts of every text, one row each."""
    most = longest_of(data, offsets) + 1
    line, rest = np.empty(most, np.int32), np.empty(most, np.int32)
    for text in range(len(offsets) - 1):
        start, end = offsets[text], offsets[text + 1]
        words = characters = alnum = lines = longest = filled = tables = 0
        length, blank, in_word = 0, True, False
        at = start
        while at <= end:
            code = 10 if at == end else code_point(data, at)
            if code == 10:
                lines += 1
                longest = max(longest, length)
                if not blank:
                    filled += 1
                    tables += is_data_line(line, length, rest, flags)
                characters += length + (at < end)
                length, blank, in_word = 0, True, False
                at += 1
                continue
            at += width(data[at])
            line[length] = code
            length += 1
            flag = flags[code]
            if flag & SPACE:
                in_word = False
                continue
            blank = False
            words += not in_word
            in_word = True
            alnum += (flag & WORD) != 0 and code != UNDERSCORE
        row = counts[text]
        row[0], row[1], row[2], row[3], row[4], row[5], row[6] = (
            words,
            characters,
            alnum,
            lines,
            longest,
            filled,
            tables,
        )


def count_lines(texts: Texts) -> Offsets:
    """The counts of every text: rows are texts, columns are named at the top of this file."""
    counts = np.zeros((len(texts), 7), np.int64)
    count_all(texts.data, texts.offsets, letter_flags(), counts)
    return counts
