"""Splits texts into the words that decontamination compares: lower case, punctuation gone, as 64-bit hashes.

    letters   runs of letters, digits and underscores, what re.findall(r"\\w+", text.lower()) gives
    cleaned   decon's cleaning: lower case, each character of `PUNCTUATION` a space, then split at white space

One table says for each code point which character it counts as; 0 separates words, the highest bit marks letters.
Lower case is that of single characters, so a text keeps its length and all positions in it.

Invariant: a word's hash depends on its lower-case characters only, the same on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ingot.data.native import PRIME_1, PRIME_3, finish, kernel
from ingot.data.text.characters import ASSIGNED, code_point, width
from ingot.data.text.texts import Texts

WordRule = Literal["letters", "cleaned"]

PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~“”‘’—"
"""What decon replaces with a space."""

LETTER = np.uint32(1 << 31)


@dataclass(frozen=True)
class Words:
    """The words of many texts, end to end: text d has the words offsets[d] … offsets[d + 1] - 1."""

    hashes: NDArray[np.uint64]
    plain: NDArray[np.uint8]  # 1: two or more characters, all of them letters
    starts: NDArray[np.int64]  # the byte of `Texts.data` where each word begins
    offsets: NDArray[np.int64]


@cache
def character_table(rule: WordRule) -> NDArray[np.uint32]:
    """By code point: the character in lower case (and `LETTER`, if it is one), or 0 if it separates words."""
    table = np.arange(0x110000, dtype=np.uint32)
    for block in ASSIGNED:
        for code in block:
            character = chr(code)
            if rule == "letters":
                inside = character.isalnum() or character == "_"
            else:
                inside = not character.isspace()
            lower = character.lower()
            if inside:
                table[code] = (ord(lower) if len(lower) == 1 else code) | (LETTER if character.isalpha() else 0)
            else:
                table[code] = 0
    table[0] = 0
    if rule == "cleaned":
        table[[ord(character) for character in PUNCTUATION]] = 0
    table.setflags(write=False)
    return table


@kernel
def _hash_words(data, offsets, table, hashes, plain, starts, counts) -> Any:  # type: ignore[no-untyped-def]
    """Hash every word of every text; the number of them."""
    count = 0
    for text in range(len(offsets) - 1):
        counts[text] = count
        at = offsets[text]
        stop = offsets[text + 1]
        value = PRIME_3
        length = 0
        letters = LETTER
        while at < stop:
            first = data[at]
            if first < 0x80:
                character = table[first]
                at += 1
            else:
                character = table[code_point(data, at)]
                at += width(first)
            if character != 0:
                if length == 0:
                    starts[count] = at - width(first)
                value = (value ^ np.uint64(character)) * PRIME_1
                letters &= character
                length += 1
            elif length:
                hashes[count] = finish(value)
                plain[count] = letters != 0 and length > 1
                count += 1
                value = PRIME_3
                length = 0
                letters = LETTER
        if length:
            hashes[count] = finish(value)
            plain[count] = letters != 0 and length > 1
            count += 1
    counts[len(offsets) - 1] = count
    return count


@kernel
def _word_spans(data, start, stop, table, spans) -> Any:  # type: ignore[no-untyped-def]
    """Where the words of one text are, in characters: rows of (start, end). The number of words."""
    count = 0
    begin = -1
    at = start
    position = 0
    while at < stop:
        character = table[code_point(data, at)]
        at += width(data[at])
        if character != 0 and begin < 0:
            begin = position
        elif character == 0 and begin >= 0:
            spans[count, 0] = begin
            spans[count, 1] = position
            count += 1
            begin = -1
        position += 1
    if begin >= 0:
        spans[count, 0] = begin
        spans[count, 1] = position
        count += 1
    return count


def words_of(texts: Texts, rule: WordRule) -> Words:
    """The words of every text."""
    most = texts.bytes // 2 + len(texts) + 1
    hashes, starts = np.empty(most, np.uint64), np.empty(most, np.int64)  # pages that stay unused take no memory
    plain = np.empty(most, np.uint8)
    offsets = np.zeros(len(texts) + 1, np.int64)
    count = _hash_words(texts.data, texts.offsets, character_table(rule), hashes, plain, starts, offsets)
    return Words(hashes[:count], plain[:count], starts[:count], offsets)


def word_spans(texts: Texts, row: int, rule: WordRule) -> NDArray[np.int64]:
    """For each word of one text, its characters [start, end)."""
    start, stop = int(texts.offsets[row]), int(texts.offsets[row + 1])
    spans = np.empty(((stop - start) // 2 + 1, 2), np.int64)
    return spans[: _word_spans(texts.data, start, stop, character_table(rule), spans)]
