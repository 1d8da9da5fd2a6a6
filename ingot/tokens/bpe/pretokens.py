r"""Cutting text into pretokens: the regular expressions of rules.py as a loop over UTF-8 bytes.

A regular expression tries its alternatives in order, each as long as it can. The loop does the same with one look at the
first character. Where an alternative gives characters back ("backtracks") the outcome is worked out beforehand:

    \s*[\r\n]+    up to the last line end of the run of blanks
    \s+(?!\S)     the run of blanks without its last character, unless the run ends the text
    U*L+          (o200k; U: not lower, L: not upper, S = U ∩ L: letters without case, marks) the run of U and the L behind
                  it; if no lower letter follows the run, only up to its last S; nothing without one

Invariant: the pretokens of a text are its bytes, end to end; none is empty. The bytes must be valid UTF-8.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.data.native import inline, load_8, loop
from ingot.data.text.blocks import HIGH, ONES, before_first, between, count_named, others
from ingot.data.text.texts import Texts
from ingot.tokens.bpe.classes import (
    BLANK,
    LATER_NUMBER,
    LETTER,
    LINE_END,
    LOWER,
    MARK,
    NUMBER,
    OTHER,
    UPPER,
    character_classes,
)
from ingot.tokens.bpe.rules import Rules

SPACE, APOSTROPHE, SLASH = 32, 39, 47
WHITE = BLANK | LINE_END
ANY_NUMBER = NUMBER | LATER_NUMBER
SIGN = OTHER | MARK | LATER_NUMBER  # [^\s\p{L}\p{N}]
NOT_LOWER, NOT_UPPER, NO_CASE = UPPER | LETTER | MARK, LOWER | LETTER | MARK, LETTER | MARK


@loop
def look(data: np.ndarray, at: int, classes: np.ndarray) -> tuple[Any, int]:
    """The class of the character that begins at `at`, and how many bytes it has."""
    byte = np.int64(data[at])
    if byte < 0x80:
        return np.int64(classes[byte]), 1
    if byte < 0xE0:
        return np.int64(classes[(byte & 0x1F) << 6 | (data[at + 1] & 0x3F)]), 2
    if byte < 0xF0:
        return np.int64(classes[(byte & 0x0F) << 12 | (data[at + 1] & 0x3F) << 6 | (data[at + 2] & 0x3F)]), 3
    high = (byte & 0x07) << 18 | (data[at + 1] & 0x3F) << 12
    return np.int64(classes[high | (data[at + 2] & 0x3F) << 6 | (data[at + 3] & 0x3F)]), 4


@loop
def run_end(data: np.ndarray, at: int, end: int, classes: np.ndarray, wanted: int) -> int:
    """Where the run of characters of the wanted classes ends."""
    while at < end:
        kind, size = look(data, at, classes)
        if not kind & wanted:
            break
        at += size
    return at


@loop
def plain_word_end(data: np.ndarray, at: int, end: int) -> int:
    """The end of a word of ASCII letters, with or without a blank in front; `at` if it is not one, or something that is not
    ASCII follows, or the text ends within eight bytes. All rules but the cased ones agree on such words.

    Eight bytes at a time: a loop over letters has its last branch guessed wrong once a word.
    """
    first = at + 1 if data[at] == SPACE else at
    stop = first
    while stop + 8 <= end:
        block = load_8(data, stop)
        small = (block | np.uint64(0x20) * ONES) & ~HIGH
        ending = ~between(small, np.uint64(0x61), np.uint64(0x7A)) & HIGH | others(block)
        if ending:
            stop += int(count_named(before_first(ending)))
            return stop if stop > first and data[stop] < 0x80 else at
        stop += 8
    return at


@loop
def contraction_end(data: np.ndarray, at: int, end: int, any_case: bool) -> int:
    """The end of 's 't 're 've 'm 'll 'd; `at` if there is none."""
    if end - at < 2 or data[at] != APOSTROPHE:
        return at
    first, second = np.int64(data[at + 1]), np.int64(data[at + 2]) if at + 2 < end else 0
    if any_case:
        if first == 0xC5 and second == 0xBF:  # U+017F, the long s
            return at + 3
        first |= 32 if 65 <= first <= 90 else 0
        second |= 32 if 65 <= second <= 90 else 0
    if first == 115 or first == 116 or first == 109 or first == 100:  # s t m d
        return at + 2
    if (second == 101 and (first == 114 or first == 118)) or (first == 108 and second == 108):  # re ve ll
        return at + 3
    return at


@loop
def mostly_lower_end(data: np.ndarray, first: int, end: int, classes: np.ndarray) -> int:
    """The end of U*L+ from `first`; `first` if it does not match."""
    at, after_no_case = first, first
    while at < end:
        kind, size = look(data, at, classes)
        if not kind & NOT_LOWER:
            if kind & LOWER:
                return run_end(data, at, end, classes, NOT_UPPER)
            break
        at += size
        if kind & NO_CASE:
            after_no_case = at
    return after_no_case


@loop
def cased_word_end(data: np.ndarray, at: int, second: int, end: int, classes: np.ndarray, before: bool) -> int:
    """The end of a word of o200k; `at` if there is none. `before`: the first character may stand before a word, which
    then begins at `second`."""
    stop = second
    if before:
        stop = mostly_lower_end(data, second, end, classes)
    if stop == second:
        stop = mostly_lower_end(data, at, end, classes)
        if stop == at:
            first = second if before else at
            stop = run_end(data, first, end, classes, NOT_LOWER)
            if stop == first:
                return at
    return contraction_end(data, stop, end, True)


@loop
def blanks_end(data: np.ndarray, at: int, end: int, classes: np.ndarray, rules: Rules) -> int:
    """The end of the pretoken that begins with white space which belongs to nothing behind it."""
    stop, last, after_line = at, at, at
    while stop < end:
        kind, size = look(data, stop, classes)
        if not kind & WHITE:
            break
        last = stop
        stop += size
        if kind & LINE_END:
            after_line = stop
    if rules.whole_tail and stop == end:
        return stop
    if rules.line_ends and after_line > at:
        return after_line
    return stop if stop == end or last == at else last


@loop
def line_ends_end(data: np.ndarray, at: int, end: int, slashes: bool) -> int:
    """Where the line ends behind signs end, with the slashes among them if those count."""
    while at < end and (data[at] == 10 or data[at] == 13 or (slashes and data[at] == SLASH)):
        at += 1
    return at


@inline
def pretoken_end(data: np.ndarray, at: int, end: int, classes: np.ndarray, rules: Rules) -> int:
    """Where the pretoken that begins at `at` ends; no look goes beyond `end`."""
    kind, size = look(data, at, classes)
    blank = data[at] == SPACE
    before = kind & rules.before_word != 0 if rules.before_word else blank
    if rules.cased:
        stop = cased_word_end(data, at, at + size, end, classes, before)
        if stop > at:
            return stop
    else:
        if rules.contractions:
            stop = contraction_end(data, at, end, rules.any_case)
            if stop > at:
                return stop
        first = at + size if before and not kind & rules.word else at
        stop = run_end(data, first, end, classes, rules.word)
        if stop > first:
            return stop
    first = at + 1 if blank else at
    if rules.digits == 0:
        stop = run_end(data, first, end, classes, NUMBER)
        if stop > first:
            return stop
    elif kind & NUMBER:
        stop = at + size
        for _ in range(rules.digits - 1):
            if stop < end:
                kind, size = look(data, stop, classes)
                stop += size if kind & NUMBER else 0
        return stop
    stop = run_end(data, first, end, classes, SIGN)
    if stop > first:
        return line_ends_end(data, stop, end, rules.slashes) if rules.line_ends else stop
    return blanks_end(data, at, end, classes, rules)


@loop
def count_run(data: np.ndarray, at: int, end: int, classes: np.ndarray, wanted: int) -> int:
    """How many characters of the wanted classes follow one another."""
    count = 0
    while at < end:
        kind, size = look(data, at, classes)
        if not kind & wanted:
            break
        at += size
        count += 1
    return count


@loop
def cut(
    data: np.ndarray, offsets: np.ndarray, classes: np.ndarray, rules: Rules, ends: np.ndarray, firsts: np.ndarray
) -> None:
    """Fill in where each pretoken ends; those of text i are ends[firsts[i] : firsts[i + 1]]."""
    found = 0
    for text in range(len(offsets) - 1):
        firsts[text] = found
        at, end = offsets[text], offsets[text + 1]
        stop = at if rules.digits_first else end  # where the stretch ends beyond which nothing is looked at
        while at < end:
            if not rules.cased:
                word_end = plain_word_end(data, at, end)
                if word_end > at:
                    at = word_end
                    ends[found] = at
                    found += 1
                    continue
            kind, size = look(data, at, classes)
            if rules.from_the_right and kind & NUMBER:
                left = count_run(data, at, end, classes, NUMBER)  # once a run: it may be as long as the text
                while left > 0:
                    for _ in range((left - 1) % 3 + 1):
                        _, size = look(data, at, classes)
                        at += size
                        left -= 1
                    ends[found] = at
                    found += 1
                continue
            if rules.digits_first and kind & ANY_NUMBER:
                at += size
            else:
                if at >= stop:
                    stop = run_end(data, at, end, classes, ~ANY_NUMBER)
                at = pretoken_end(data, at, stop, classes, rules)
            ends[found] = at
            found += 1
    firsts[len(offsets) - 1] = found


def pretokens(texts: Texts, rules: Rules) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where each pretoken ends in `texts.data`, and by text the number of its first one (one more at the end)."""
    ends, firsts = np.empty(texts.bytes, np.int64), np.empty(len(texts) + 1, np.int64)
    cut(texts.data, texts.offsets, character_classes(), rules, ends, firsts)
    return ends[: firsts[-1]], firsts
