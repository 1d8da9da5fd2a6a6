"""Splits texts into lines and paragraphs.

    newline      what text.split("\\n") gives: every "\\n" ends a line, empty lines count
    splitlines   what text.splitlines() gives: \\r\\n, \\v, \\f, U+2028 and others end a line too; no empty last line
    paragraphs   what re.split(r"\\n{2,}", text.strip()) gives, as the Gopher rules count them

Invariant: equal to Python's on every text.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from ingot.data.native import Bytes, Marks, Offsets, hash_span, load_8, loop
from ingot.data.text.blocks import before_first, continuations, count_named, first_equal
from ingot.data.text.characters import LINE_BREAK, character_flags, code_point, width
from ingot.data.text.spans import SEED, LastBatch, Spans, empty_spans
from ingot.data.text.texts import Texts

LineKind = Literal["newline", "splitlines"]

_last = LastBatch()
forget = _last.entries.clear


def lines_of(texts: Texts, kind: LineKind = "newline") -> Spans:
    """The lines of every text, without what ended them, and without flags."""
    found = _last.find(texts, kind)
    if found is None:
        found = _cut_lines(texts, only_newlines=kind == "newline")
        _last.keep(texts, kind, found)
    return found


def _cut_lines(texts: Texts, *, only_newlines: bool) -> Spans:
    other = np.zeros(len(texts), bool)
    if not only_newlines:
        _has_other_breaks(texts.data, texts.offsets, other)
    newlines = np.count_nonzero(texts.data[texts.offsets[0] : texts.offsets[-1]] == ord("\n"))
    beyond = np.diff(texts.offsets)[other].sum()  # each byte of these texts may be a break
    spans = empty_spans(int(newlines + beyond) + len(texts), len(texts))
    count = _lines(texts.data, texts.offsets, character_flags(), only_newlines, other, spans)
    return spans.first(count)


@loop
def _has_other_breaks(data: Bytes, offsets: Offsets, found: Marks) -> None:
    """For each text whether str.splitlines may break it elsewhere than at newlines."""
    for text in range(len(offsets) - 1):
        # Loops over slices, without a branch: the compiler compares sixteen bytes at a time.
        first = data[offsets[text] : offsets[text + 1]]
        second, third = first[1:], first[2:]
        other = False
        for byte in first:
            other |= (byte >= 0x0B) & (byte <= 0x0D)
            other |= (byte >= 0x1C) & (byte <= 0x1E)
        for at in range(len(second)):
            other |= (first[at] == 0xC2) & (second[at] == 0x85)
        for at in range(len(third)):
            other |= (second[at] == 0x80) & (third[at] & 0xFE == 0xA8)  # U+2028 and U+2029
        found[text] = other


@loop
def next_newline(data: Bytes, start: int, stop: int) -> tuple[int, int]:
    """The first newline from `start` on, or `stop`; and the number of characters before it."""
    at = start
    more = np.uint64(0)  # bytes beyond the first of each character
    while at + 8 <= stop:
        block = load_8(data, at)
        newline = first_equal(block, np.uint64(0x0A))
        if newline:
            inside = before_first(newline)
            more += count_named(continuations(block) & inside)
            at += int(np.int64(count_named(inside)))
            return at, at - start - int(np.int64(more))
        more += count_named(continuations(block))
        at += 8
    while at < stop and data[at] != 0x0A:
        more += np.uint64(data[at] & 0xC0 == 0x80)
        at += 1
    return at, at - start - int(np.int64(more))


@loop
def _lines(data: Bytes, offsets: Offsets, table: Bytes, only_newlines: bool, other_breaks: Marks, spans: Spans) -> int:
    """Fill in the lines; the number of them."""
    lines = 0
    for text in range(len(offsets) - 1):
        spans.offsets[text] = lines
        start, stop = offsets[text], offsets[text + 1]
        while start < stop or (start == stop and only_newlines):
            if other_breaks[text]:
                at, length = start, 0
                while at < stop and not table[code_point(data, at)] & LINE_BREAK:
                    at += width(data[at])
                    length += 1
            else:
                at, length = next_newline(data, start, stop)
            spans.starts[lines] = start
            spans.ends[lines] = at
            spans.characters[lines] = length
            spans.hashes[lines] = hash_span(data, start, at, SEED)
            lines += 1
            if at == stop:
                break
            pair = other_breaks[text] and at + 1 < stop and data[at] == 0x0D and data[at + 1] == 0x0A
            start = at + (2 if pair else width(data[at]))
    spans.offsets[len(offsets) - 1] = lines
    return lines


def blocks_of(lines: Spans) -> Spans:
    """What re.split(r"\\n+", text) gives, from the lines of the kind `newline`: the empty ones only at the two ends."""
    keep = lines.characters > 0
    keep[lines.offsets[:-1]] = True
    keep[lines.offsets[1:] - 1] = True
    return lines.select(keep)


@loop
def _paragraphs(data: Bytes, firsts: Offsets, lasts: Offsets, spans: Spans) -> int:
    """Fill in the paragraphs of the texts data[first : last]; the number of them."""
    count = 0
    for text in range(len(firsts)):
        spans.offsets[text] = count
        at = start = firsts[text]
        stop = lasts[text]
        length = 0
        while True:
            newlines = 0
            while at < stop and data[at] == 0x0A:
                newlines += 1
                at += 1
            if newlines >= 2 or at == stop:
                spans.starts[count] = start
                spans.ends[count] = at - newlines
                spans.characters[count] = length
                spans.flags[count] = 0
                spans.hashes[count] = hash_span(data, start, at - newlines, SEED)
                count += 1
                if at == stop:
                    break
                start = at
                length = 0
            else:
                length += newlines
            at, more = next_newline(data, at, stop)
            length += more
    spans.offsets[len(firsts)] = count
    return count


def paragraphs_of(texts: Texts, words: Spans) -> Spans:
    """The paragraphs of every text, without flags; `words` are its white-space words, which say where the stripped text
    is."""
    firsts, lasts = texts.offsets[:-1].copy(), texts.offsets[:-1].copy()
    some = words.per_text() > 0
    firsts[some] = words.starts[words.offsets[:-1][some]]
    lasts[some] = words.ends[words.offsets[1:][some] - 1]
    spans = empty_spans(texts.bytes // 3 + len(texts) + 1, len(texts))
    count = _paragraphs(texts.data, firsts, lasts, spans)
    return spans.first(count)
