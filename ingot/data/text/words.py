"""Splits texts into words. Every rule that counts words says which kind it means, because it decides the outcome.

    whitespace   what str.split() gives: runs of characters that are not white space (any Unicode white space)
    letters      what re.findall(r"\\w+", text) gives: runs of letters, digits, other numbers and underscores

With a tokenizer that makes punctuation a word of its own (spaCy, as datatrove uses) the published thresholds of the
Gopher rules remove several times as much as with white-space words.

Where the text is ASCII, white-space words are cut eight bytes at a time.

Invariant: equal to Python's str.split() and re.findall on every text.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from ingot.data.native import PRIME_1, Bytes, Offsets, finish, hash_span, join, load_8, loop
from ingot.data.text.blocks import EIGHT, HIGH, ONES, before_first, between, count_named, others, spaces
from ingot.data.text.characters import SPACE, WORD, character_flags, code_point, width
from ingot.data.text.spans import SEED, LastBatch, Spans, cut, empty_spans
from ingot.data.text.texts import Texts

WordKind = Literal["whitespace", "letters"]

_last = LastBatch()
forget = _last.entries.clear


def words_of(texts: Texts, kind: WordKind = "whitespace") -> Spans:
    """The words of every text, with their length in characters, flags and hashes."""
    found = _last.find(texts, kind)
    if found is None:
        if kind == "whitespace":
            found = _cut_at_white_space(texts)
        else:
            found = cut(texts, WORD)
        _last.keep(texts, kind, found)
    return found


def _cut_at_white_space(texts: Texts) -> Spans:
    spans = empty_spans(texts.bytes // 2 + len(texts), len(texts))
    count = _white_words(texts.data, texts.offsets, character_flags(), spans)
    return spans.first(count)


@loop
def _ascii_flags(block: np.uint64, inside: np.uint64, table: Bytes) -> np.uint8:
    """The flags of the bytes `inside` a block of ASCII, together. Most words are letters and nothing else."""
    block &= inside
    small = block | np.uint64(0x20) * ONES
    if inside and between(small, np.uint64(0x61), np.uint64(0x7A)) & inside == HIGH & inside:
        return table[0x41] if small & inside != block else table[0x61]  # a capital letter has all flags of a small one
    seen = np.uint8(0)
    while inside:
        seen |= table[block & np.uint64(0xFF)]
        block >>= EIGHT
        inside >>= EIGHT
    return seen


@loop
def _white_words(data: Bytes, offsets: Offsets, table: Bytes, spans: Spans) -> int:
    """Fill in the words; the number of them."""
    words = 0
    for text in range(len(offsets) - 1):
        spans.offsets[text] = words
        at, stop = np.uint64(offsets[text]), np.uint64(offsets[text + 1])
        while True:
            while at < stop:
                first = data[at]
                if 0x20 < first < 0x80 or not table[code_point(data, int(np.int64(at)))] & SPACE:
                    break
                at += np.uint64(width(first))
            if at == stop:
                break
            start = at
            seen = np.uint8(0)
            more = np.uint64(0)  # bytes beyond the first of each character
            if at + EIGHT <= stop:  # most words: ASCII, and white space within eight bytes
                block = load_8(data, int(np.int64(at)))
                ending = spaces(block) | others(block)  # exact up to the first byte that is not ASCII
                inside = before_first(ending)
                size = count_named(inside)
                if ending and data[at + size] < 0x80:
                    spans.starts[words] = start
                    spans.ends[words] = at + size
                    spans.characters[words] = size
                    spans.flags[words] = _ascii_flags(block, inside, table)
                    spans.hashes[words] = finish(
                        join(SEED ^ size * PRIME_1, block & inside)
                    )  # hash_span, already loaded
                    words += 1
                    at += size + np.uint64(1)
                    continue
            while at + EIGHT <= stop:
                block = load_8(data, int(np.int64(at)))
                ending = spaces(block) | others(block)
                if ending:
                    inside = before_first(ending)
                    seen |= _ascii_flags(block, inside, table)
                    at += count_named(inside)
                    break
                seen |= _ascii_flags(block, ~np.uint64(0), table)
                at += EIGHT
            while at < stop:  # what is not ASCII, and the last bytes of a text
                first = data[at]
                found = table[first] if first < 0x80 else table[code_point(data, int(np.int64(at)))]
                if found & SPACE:
                    break
                seen |= found
                more += np.uint64(width(first)) - np.uint64(1)
                at += np.uint64(width(first))
            spans.starts[words] = start
            spans.ends[words] = at
            spans.characters[words] = at - start - more
            spans.flags[words] = seen
            spans.hashes[words] = hash_span(data, int(np.int64(start)), int(np.int64(at)), SEED)
            words += 1
    spans.offsets[len(offsets) - 1] = words
    return words
