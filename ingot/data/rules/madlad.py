"""CPU kernels of the step `madlad` (steps/madlad.py)."""

from __future__ import annotations

from ingot.data.native import Bytes, Marks, Offsets, loop
from ingot.data.text.characters import UPPER, WORD, code_point, width
from ingot.data.text.phrases import Phrases, find_phrases
from ingot.data.text.sentences import sentence_end
from ingot.data.text.spans import Spans
from ingot.data.text.white_space import blank

GROUPS = 9  # words in a row
LIST_CASE_WORDS, LIST_CASE_SHARE = 12, 0.5
SHORTEST, LONGEST = 20, 500
TECHNICAL_SHARE = 0.2


@loop
def _odd_words(data: Bytes, words: Spans, word: int, stop: int, table: Bytes, chosen: Marks) -> bool:
    """List case (rule 2), or too many words of one small size in a row (rule 5)? Of the words from `word` to `stop`."""
    starts, ends, characters = words.starts, words.ends, words.characters
    counted = capitals = row = 0
    while word < len(starts) and starts[word] < stop:
        if row and characters[word] == characters[word - 1] and starts[word] == ends[word - 1] + 1:
            row += 1
        else:
            row = 1
        size = characters[word]
        if chosen[5] and row == GROUPS and (size == 1 or size == 3 or size == 4):
            return True
        at, end = starts[word], min(ends[word], stop)
        while at < end:
            flags = table[code_point(data, at)]
            if flags & WORD:  # signs before it do not count
                counted += 1
                capitals += (flags & UPPER) != 0
                break
            at += width(data[at])
        word += 1
    return chosen[2] and counted >= LIST_CASE_WORDS and capitals > LIST_CASE_SHARE * counted


@loop
def _abnormal_or_technical(data: Bytes, start: int, stop: int, length_counts: bool, technical_counts: bool) -> bool:
    """Rules 3 and 4."""
    characters = technical = 0
    for at in range(start, stop):
        byte = data[at]
        characters += byte & 0xC0 != 0x80
        technical += (
            0x30 <= byte <= 0x39 or byte == 0x7B or byte == 0x7D or byte == 0x2B or 0x28 <= byte <= 0x29
            or byte == 0x2F or byte == 0x3E
        )  # fmt: skip
    return (length_counts and (characters < SHORTEST or characters > LONGEST)) or (
        technical_counts and technical > TECHNICAL_SHARE * characters
    )


@loop
def count(
    data: Bytes,
    offsets: Offsets,
    words: Spans,
    table: Bytes,
    chosen: Marks,
    phrases: Phrases,
    sentences: Offsets,
    questionable: Offsets,
) -> None:
    """The sentences of each text, and the questionable ones; chosen[n] says whether rule n is used."""
    for text in range(len(offsets) - 1):
        start = offsets[text]
        word = words.offsets[text]
        while start < offsets[text + 1]:
            end, after = sentence_end(data, start, offsets[text + 1], table)
            while word < words.offsets[text + 1] and words.ends[word] <= start:
                word += 1
            if not blank(data, start, end, table):
                sentences[text] += 1
                questionable[text] += (
                    _odd_words(data, words, word, end, table, chosen)
                    or (chosen[5] and find_phrases(data, start, end, phrases) != 0)
                    or ((chosen[3] or chosen[4]) and _abnormal_or_technical(data, start, end, chosen[3], chosen[4]))
                )
            start = after
