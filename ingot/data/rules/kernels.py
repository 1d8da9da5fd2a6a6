"""CPU kernels of the steps `newlines`, `repeated_ngrams`, `fineweb` and `bad_words`."""

from __future__ import annotations

import numpy as np

from ingot.data.native import Bytes, Marks, Offsets, loop
from ingot.data.text.characters import TERMINAL, WORD, code_point
from ingot.data.text.lines import next_newline
from ingot.data.text.phrases import Phrases, next_place, stands_at
from ingot.data.text.spans import Spans, copy_span
from ingot.data.text.white_space import blank


@loop
def shorten(data: Bytes, offsets: Offsets, most: int, result: Bytes, result_offsets: Offsets) -> int:
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


@loop
def repetitions(words: Spans, longest: int, result: Offsets) -> None:
    """The most repetitions in each text."""
    hashes, offsets = words.hashes, words.offsets
    for text in range(len(offsets) - 1):
        first, last = offsets[text], offsets[text + 1]
        best = 1 if last > first else 0
        for size in range(1, longest + 1):
            # Only a streak of best * size equal words or more counts, and it covers every so manieth word.
            word = first + size + best * size - 1
            while word < last:
                if hashes[word] != hashes[word - size]:
                    word += best * size
                    continue
                start = end = word
                while start > first + size and hashes[start - 1] == hashes[start - 1 - size]:
                    start -= 1
                while end < last and hashes[end] == hashes[end - size]:
                    end += 1
                best = max(best, (end - start) // size + 1)
                word = end + best * size
        result[text] = best


@loop
def look_at_lines(data: Bytes, lines: Spans, table: Bytes, blanks: Marks, punctuated: Marks) -> None:
    """For each line whether it is blank and whether its last character ends a sentence."""
    for line in range(len(lines.starts)):
        blanks[line] = blank(data, lines.starts[line], lines.ends[line], table)
        if not blanks[line]:
            last = lines.ends[line] - 1
            while data[last] & 0xC0 == 0x80:
                last -= 1
            punctuated[line] = (table[code_point(data, last)] & TERMINAL) != 0


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
def find(data: Bytes, offsets: Offsets, table: Bytes, phrases: Phrases, separated: bool, counts: Offsets) -> None:
    """Count how often a phrase stands in each text."""
    for text in range(len(offsets) - 1):
        begin, stop = offsets[text], offsets[text + 1]
        at = next_place(data, begin, stop, phrases.may_begin)
        while at < stop:
            counts[text] += _stands(data, at, begin, stop, table, phrases, separated)
            at = next_place(data, at + 1, stop, phrases.may_begin)
