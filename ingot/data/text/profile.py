"""Counts what the English score and the quality score need, in one pass over a text.

Counts of a text, by column of the result:
    WORDS, LETTERS, FUNCTION_WORDS, DISTINCT   runs of letters (`[^\\W\\d_]+` of the lower-case text), their characters,
                                               how many of them are English function words, how many different ones
    LATIN                                      characters a-z and A-Z
    CHARACTERS, VISIBLE                        all, and all that are not white space
    LINES, ENDED, SHORT                        lines (split at "\\n") that are not blank; those that end a sentence;
                                               those of at most 100 characters
    EXPLAINED                                  characters in Python comments and triple-quoted strings

Function words are at most eight ASCII letters, so that a word is one 64-bit number and the list a small hash table.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from ingot.data.native import Bytes, Hashes, Offsets, kernel
from ingot.data.text.characters import DIGIT, SPACE, WORD, code_point, letter_flags, width
from ingot.data.text.texts import Texts

WORDS, LETTERS, FUNCTION_WORDS, DISTINCT, LATIN, CHARACTERS, VISIBLE, LINES, ENDED, SHORT, EXPLAINED = range(11)

# Words that are frequent in other languages too (in, a, on, for, is, as, was) are not on the list.
# fmt: off
ENGLISH = (
    "the", "of", "and", "to", "that", "it", "with", "be", "this", "are", "or", "by", "from", "not", "have",
    "has", "which", "been", "were", "an", "at", "you", "we", "they", "their", "his", "her", "its", "if", "can",
    "will", "would", "should", "must", "may", "when", "then", "than", "there", "these", "those", "other", "any",
    "all", "each", "only", "such", "used", "using", "does", "do", "use", "return", "returns", "set", "more",
    "one", "no", "but", "so", "into", "out", "up", "about", "after", "before", "between", "both", "during",
    "through", "where", "who", "what", "how", "also", "because", "while", "until", "same", "without", "within",
    "under", "over", "against",
)
# fmt: on
SLOTS = 1024
MIX = np.uint64(0x9E3779B97F4A7C15)
SHORT_LINE = 100
SENTENCE_ENDS = (46, 63, 33, 58)  # . ? ! :
CLOSERS = (34, 39, 0x201D, 0x2019, 41, 93, 42, 95, 96)  # " ' ” ’ ) ] * _ `
DOTTED_I = 0x130  # in lower case an i and a combining dot, which ends a word; no other character becomes two


@kernel
def slot_of(word: np.uint64) -> np.int64:
    """Where the search for a word begins."""
    return np.int64((word * MIX) >> np.uint64(54))


@cache
def function_words() -> Hashes:
    """The list as an open-addressed table; 0 is a free slot."""
    table = np.zeros(SLOTS, np.uint64)
    for word in ENGLISH:
        packed = np.uint64(int.from_bytes(word.encode("ascii"), "little"))
        slot = slot_of(packed)
        while table[slot]:
            slot = np.int64((slot + 1) % SLOTS)
        table[slot] = packed
    return table


@kernel
def find(table: Hashes, word: np.uint64) -> np.int64:
    """The slot of a word, or -1."""
    slot = slot_of(word)
    while table[slot] != 0:
        if table[slot] == word:
            return slot
        slot = np.int64((slot + 1) % SLOTS)
    return np.int64(-1)


@kernel
def is_one_of(code: int, codes: tuple[int, ...]) -> bool:
    """`code in codes` (which LLVM unrolls)."""
    found = False
    for other in codes:
        found |= code == other
    return found


@kernel
def explained_end(data: Bytes, at: int, end: int) -> int:
    """The end of a triple-quoted string whose quotes begin at `at`, or -1 if it is not closed."""
    quote = data[at]
    at += 3
    while at < end:
        if data[at] == 92:  # a backslash takes the next character with it
            at += 2
        elif data[at] == quote and at + 2 < end and data[at + 1] == quote and data[at + 2] == quote:
            return at + 3
        else:
            at += 1
    return -1


@kernel
def count_explained(data: Bytes, start: int, end: int) -> int:
    """Characters in comments (`#` after a blank or at a line's start) and in triple-quoted strings."""
    found = 0
    open_34 = open_39 = False  # once a string stays open, so do all later ones with the same quotes
    at = start
    while at < end:
        first = data[at]
        stop = -1
        if (first == 34 and not open_34) or (first == 39 and not open_39):
            if at + 2 < end and data[at + 1] == first and data[at + 2] == first:
                stop = explained_end(data, at, end)
                if stop < 0 and first == 34:
                    open_34 = True
                elif stop < 0:
                    open_39 = True
        elif (first == 35 and (at == start or data[at - 1] == 10)) or (
            (first == 32 or first == 9) and at + 1 < end and data[at + 1] == 35
        ):
            stop = at
            while stop < end and data[stop] != 10:
                stop += 1
        if stop < 0:
            at += 1
            continue
        for index in range(at, stop):
            found += (data[index] & 0xC0) != 0x80
        at = stop
    return found


@kernel
def count_all(data: Bytes, offsets: Offsets, flags: Bytes, table: Hashes, counts: Offsets) -> None:
    """The counts of every text, one row each."""
    seen = np.full(SLOTS, -1, np.int64)
    for text in range(len(offsets) - 1):
        start, end = offsets[text], offsets[text + 1]
        row = counts[text]
        words = letters = functional = distinct = latin = characters = visible = lines = ended = short = 0
        packed, length = np.uint64(0), 0  # of the word that is being read
        line_length, blank = 0, True
        closing = 0  # 1 behind a sentence's end and closing quotes, 2 behind white space after that
        at = start
        while at <= end:
            code = 10 if at == end else code_point(data, at)
            at += 1 if at == end else width(data[at])
            flag = flags[code]
            lower = code | 32
            is_latin = 97 <= lower <= 122 and code < 128
            if is_latin or ((flag & WORD) and not (flag & DIGIT) and code != 95):
                latin += is_latin
                letters += 1
                if is_latin and length < 8:
                    packed |= np.uint64(lower) << np.uint64(8 * length)
                else:
                    packed |= np.uint64(0xFF) << np.uint64(56)  # no word of the list has this byte
                length += 1
            if length and (code == DOTTED_I or not (is_latin or ((flag & WORD) and not (flag & DIGIT) and code != 95))):
                words += 1
                slot = find(table, packed)
                if slot >= 0:
                    functional += 1
                    if seen[slot] != text:
                        seen[slot] = text
                        distinct += 1
                packed, length = np.uint64(0), 0
            if code == 10:
                if not blank:
                    lines += 1
                    ended += closing > 0
                    short += line_length <= SHORT_LINE
                line_length, blank, closing = 0, True, 0
                continue
            line_length += 1
            if flag & SPACE:
                if closing == 1:
                    closing = 2
                continue
            blank = False
            visible += 1
            if is_one_of(code, SENTENCE_ENDS):
                closing = 1
            elif closing == 2 or not is_one_of(code, CLOSERS):
                closing = 0
        for index in range(start, end):
            characters += (data[index] & 0xC0) != 0x80
        row[0], row[1], row[2], row[3], row[4] = words, letters, functional, distinct, latin
        row[5], row[6], row[7], row[8], row[9] = characters, visible, lines, ended, short
        row[10] = count_explained(data, start, end)


def profile(texts: Texts) -> Offsets:
    """The counts of every text: rows are texts, columns are named at the top of this file."""
    counts = np.zeros((len(texts), 11), np.int64)
    count_all(texts.data, texts.offsets, letter_flags(), function_words(), counts)
    return counts
