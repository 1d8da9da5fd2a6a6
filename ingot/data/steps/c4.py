"""The step `c4`: the line and page rules of C4 (Raffel et al. 2020, section 2.2), in the order of datatrove's `C4QualityFilter`.

For each line (str.splitlines), stripped:

    a word of more than 1000 characters       the line goes
    [1], [edit], [citation needed]            cut out of the line
    no terminal punctuation, or "..."         the line goes          (FineWeb turns this rule off)
    fewer than 3 words                        the line goes
    "lorem ipsum"                             the document goes
    "javascript"                              the line goes
    "{"                                       the document goes
    terms of use, privacy policy, …           the line goes

and the document goes if the lines that stay hold fewer than 5 sentences (text/sentences.py). The lines that stay are
joined with newlines. Phrases are found in any case of A-Z.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow
from pydantic import Field

from ingot.data.native import Bytes, Offsets, loop
from ingot.data.step import PerText, Rule, at_least, numbers
from ingot.data.text.characters import character_flags
from ingot.data.text.lines import lines_of
from ingot.data.text.phrases import Phrases, find_phrases, stands_at
from ingot.data.text.sentences import count_sentences
from ingot.data.text.spans import Spans, copy_span
from ingot.data.text.texts import Texts
from ingot.data.text.white_space import count_words, longest_word, strip

POLICIES = ["terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies"]
CITATIONS = ["[edit]", "[citation needed]"]
LOREM_IPSUM, CURLY_BRACKET = 1, 2  # values of `banned`


@loop
def _citation(data: Bytes, at: int, stop: int, names: Phrases) -> int:
    """The length of the citation that begins at `at`, or 0."""
    end = at + 1
    while end < stop and 0x30 <= data[end] <= 0x39:
        end += 1
    if end < stop and data[end] == 0x5D:
        return end + 1 - at
    for name in range(len(names.numbers)):
        if stands_at(data, at, stop, names, name):
            return names.offsets[name + 1] - names.offsets[name]
    return 0


@loop
def _holds(data: Bytes, start: int, stop: int, wanted: int) -> bool:
    """Does the byte occur?"""
    found = False
    for byte in data[start:stop]:  # over a slice and without stopping: many bytes are compared at a time
        found |= byte == wanted
    return found


@loop
def _copy_without_citations(
    data: Bytes, start: int, stop: int, names: Phrases, result: Bytes, size: int
) -> tuple[int, int]:
    """Append the line to `result`; its new size and the number of citations."""
    if not len(names.numbers) or not _holds(data, start, stop, 0x5B):
        return copy_span(data, start, stop, result, size), 0
    citations = 0
    at = start
    while at < stop:
        if data[at] == 0x5B:
            length = _citation(data, at, stop, names)
            if length:
                citations += 1
                at += length
                continue
        result[size] = data[at]
        size += 1
        at += 1
    return size, citations


@loop
def _ends_a_sentence(data: Bytes, start: int, stop: int) -> bool:
    """Does the line end in one of . ? ! " ' but not in three dots?"""
    if start == stop:
        return False
    last = data[stop - 1]
    if last == 0x2E:
        return not (stop - start >= 3 and data[stop - 2] == 0x2E and data[stop - 3] == 0x2E)
    return last == 0x3F or last == 0x21 or last == 0x22 or last == 0x27


@loop
def c4(
    data: Bytes,
    offsets: Offsets,
    lines: Spans,
    table: Bytes,
    phrases: Phrases,
    citations: Phrases,
    rules: tuple[bool, ...],
    limits: tuple[int, ...],
    result: Bytes,
    result_offsets: Offsets,
    banned: Offsets,
    sentences: Offsets,
    removed_lines: Offsets,
    removed_citations: Offsets,
) -> int:
    """Rewrite every text into `result`. `rules` and `limits` in the order of C4.annotate; phrases: lorem ipsum,
    javascript, then the policies."""
    punctuation, lorem_ipsum, javascript, curly_brackets, policies = rules
    min_words, max_word_length = limits
    size = 0
    for text in range(len(offsets) - 1):
        begin = result_offsets[text] = size
        for line in range(lines.offsets[text], lines.offsets[text + 1]):
            first, last = strip(data, lines.starts[line], lines.ends[line], table)
            if last - first > max_word_length and longest_word(data, first, last, table) > max_word_length:
                removed_lines[text] += 1
                continue
            before = size
            if size > begin:
                result[size] = 0x0A
                size += 1
            start = size
            size, cut = _copy_without_citations(data, first, last, citations, result, size)
            keep = not (punctuation and not _ends_a_sentence(result, start, size))
            keep = keep and count_words(data, first, last, table) >= min_words
            if keep:
                found = find_phrases(result, start, size, phrases)
                if lorem_ipsum and found & np.uint64(1):
                    banned[text] = LOREM_IPSUM
                    break
                if javascript and found & np.uint64(2):
                    keep = False
                elif curly_brackets and _holds(result, start, size, 0x7B):
                    banned[text] = CURLY_BRACKET
                    break
                elif policies and found >> np.uint64(2):
                    keep = False
            if keep:
                sentences[text] += count_sentences(result, start, size, table)
                removed_citations[text] += cut
            else:
                size = before
                removed_lines[text] += last > first
        if banned[text]:  # the text stays as it was, to be looked at
            size = copy_span(data, offsets[text], offsets[text + 1], result, begin)
            continue
        start, stop = strip(result, begin, size, table)
        for at in range(stop - start):
            result[begin + at] = result[start + at]
        size = begin + stop - start
    result_offsets[len(offsets) - 1] = size
    return size


class C4Step(PerText):
    """The step `c4`: the line and page rules of C4 (Raffel et al. 2020, section 2.2), as datatrove has them. Rewrites the text.

    FineWeb uses them with `terminal_punctuation: false`. The bad words of C4 are a step of their own (`bad_words`).
    """

    rate = 49
    decides: ClassVar[frozenset[str]] = frozenset({"min_sentences"})

    terminal_punctuation: bool = Field(
        default=True, description="drop lines that do not end in `.`, `?`, `!`, `\"` or `'`, or that end in `...`"
    )
    min_words: int = Field(default=3, ge=0, description="a line with fewer white-space words is dropped")
    max_word_length: int = Field(default=1000, ge=1, description="a line with a longer word is dropped")
    citations: bool = Field(default=True, description="cut out `[1]`, `[]`, `[edit]` and `[citation needed]`")
    javascript: bool = Field(default=True, description="drop lines that mention javascript")
    policies: bool = Field(
        default=True, description="drop lines that mention terms of use, a privacy or cookie policy, or using cookies"
    )
    lorem_ipsum: bool = Field(default=True, description="remove documents with `lorem ipsum` in a line that would stay")
    curly_brackets: bool = Field(default=True, description="remove documents with `{` in a line that would stay")
    min_sentences: int = Field(default=5, ge=0, description="fewest sentences in the lines that stay")

    def writes(self) -> tuple[str, ...]:
        return ("text", "_c4_banned", "_c4_sentences", "_c4_removed_lines", "_c4_removed_citations")

    def measure(self, texts: Texts) -> dict[str, Any]:
        lines = lines_of(texts, "splitlines")
        phrases = Phrases.of(["lorem ipsum", "javascript", *POLICIES], ignore_case=True)
        citations = Phrases.of(CITATIONS if self.citations else [], ignore_case=False)
        rules = (self.terminal_punctuation, self.lorem_ipsum, self.javascript, self.curly_brackets, self.policies)
        result = np.empty(texts.bytes + 1, np.uint8)
        offsets = np.zeros(len(texts) + 1, np.int64)
        banned, sentences, removed_lines, removed_citations = (np.zeros(len(texts), np.int64) for _ in range(4))
        size = c4(
            texts.data,
            texts.offsets,
            lines,
            character_flags(),
            phrases,
            citations,
            rules,
            (self.min_words, self.max_word_length),
            result,
            offsets,
            banned,
            sentences,
            removed_lines,
            removed_citations,
        )
        return {
            "text": Texts(result[:size], offsets),
            "_c4_banned": banned,
            "_c4_sentences": sentences,
            "_c4_removed_lines": removed_lines,
            "_c4_removed_citations": removed_citations,
        }

    def decide(self, columns: pyarrow.Table) -> list[Rule]:
        banned = numbers(columns, "_c4_banned")
        return [
            Rule("lorem ipsum", banned == LOREM_IPSUM),
            Rule("curly bracket", banned == CURLY_BRACKET),
            at_least("sentences", numbers(columns, "_c4_sentences"), self.min_sentences),
        ]
