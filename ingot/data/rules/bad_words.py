"""CPU kernels of the step `bad_words` (steps/bad_words.py)."""

from __future__ import annotations

import numpy as np

from ingot.data.native import loop
from ingot.data.text.arrays import Bytes, Places
from ingot.data.text.characters import WORD, code_point
from ingot.data.text.phrases import Phrases, next_place, stands_at

WITHOUT_SPACES = frozenset({"ja", "th", "zh"})
DRAW_SEED = np.uint64(0x0BADC0DE)


@loop
def _is_word(data: Bytes, at: int, table: Bytes) -> bool:
    """Is the character that the byte at `at` belongs to one of \\w?"""
    while data[at] & 0xC0 == 0x80:
        at -= 1
    return (table[code_point(data, at)] & WORD) != 0


@loop
def _stands(data: Bytes, at: int, begin: int, stop: int, table: Bytes, phrases: Phrases, separated: bool) -> bool:
    """Does a phrase stand at `at`, in the text from `begin` to `stop`?"""
    if separated and at > begin and _is_word(data, at - 1, table):
        return False
    pair = np.uint64(data[at]) << np.uint64(8) | np.uint64(data[at + 1])
    first = np.int64(phrases.begins[pair])
    for phrase in range(first, first + np.int64(phrases.counts[pair])):
        end = at + phrases.offsets[phrase + 1] - phrases.offsets[phrase]
        if stands_at(data, at, stop, phrases, phrase) and not (separated and end < stop and _is_word(data, end, table)):
            return True
    return False


@loop
def find(data: Bytes, offsets: Places, table: Bytes, phrases: Phrases, separated: bool, counts: Places) -> None:
    """Count the places in each text where a phrase stands."""
    for text in range(len(offsets) - 1):
        begin, stop = offsets[text], offsets[text + 1]
        at = next_place(data, begin, stop, phrases.may_begin)
        while at < stop:
            counts[text] += _stands(data, at, begin, stop, table, phrases, separated)
            at = next_place(data, at + 1, stop, phrases.may_begin)
