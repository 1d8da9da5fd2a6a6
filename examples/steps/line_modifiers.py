"""The step `line_modifiers` removes lines that are not prose (DCLM, OLMo 3), and documents that lose too many words.

For each line (text.split("\n")), empty ones excepted:

    upper-case letters / characters > 0.5              the line goes
    digits 0-9 / characters > 0.999999                 the line goes
    "1,204 likes", "3.5K shares", … and nothing else   the line goes
    fewer than 2 white-space words                     the line goes
    "items in cart", "Read more...", "Sign-in"         cut out of lines of at most 10 words; a line left blank goes

and the document goes if more than 5 % of its words went. datamap-rs, the code of OLMo 3, divides by bytes rather than
characters, takes the dots of "Read more..." for any character, and its 10-word limit does not reach the code, because
the option has another name there; here they are what the configuration says.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow
from pydantic import Field, field_validator, model_validator

from ingot.data.native import Bytes, Offsets, loop
from ingot.data.step import PerText, Rule, at_most, numbers, per
from ingot.data.text.characters import SPACE, UPPER, WORD, character_flags, code_point, pass_over, width
from ingot.data.text.lines import lines_of
from ingot.data.text.phrases import Phrases, find_phrases, stands_at
from ingot.data.text.spans import Spans, copy_span
from ingot.data.text.texts import Texts
from ingot.data.text.white_space import count_words

COUNTED = ["likes", "shares", "comments", "retweets", "reposts", "quotes", "bookmarks", "upvotes", "downvotes",
           "downloads", "views", "followers"]  # fmt: skip
WHERE = {"any": 0, "prefix": 1, "suffix": 2}


@loop
def _upper_case(data: Bytes, start: int, stop: int, characters: int, table: Bytes) -> int:
    """The number of upper-case letters."""
    count = 0
    if characters == stop - start:
        for byte in data[start:stop]:
            count += (byte >= 0x41) & (byte <= 0x5A)
        return count
    at = start
    while at < stop:
        count += (table[code_point(data, at)] & UPPER) != 0
        at += width(data[at])
    return count


@loop
def _digits_end(data: Bytes, at: int, stop: int) -> int:
    """Where a run of digits ends."""
    while at < stop and 0x30 <= data[at] <= 0x39:
        at += 1
    return at


@loop
def _is_counter(data: Bytes, at: int, stop: int, table: Bytes, names: Phrases) -> bool:
    """Is the line a number, perhaps with K, M or B, and a name of what was counted, among anything that is not \\w?"""
    at = pass_over(data, at, stop, table, WORD, False)
    if at == stop or not 0x30 <= data[at] <= 0x39:
        return False
    while at < stop and (0x30 <= data[at] <= 0x39 or data[at] == 0x2C or data[at] == 0x2E):
        at += 1
    if at < stop:
        unit = names.fold[data[at]]
        at += unit == 0x6B or unit == 0x6D or unit == 0x62  # k, m, b
    space = at
    at = pass_over(data, at, stop, table, SPACE, True)
    if at == space:
        return False
    for name in range(len(names.numbers)):
        if stands_at(data, at, stop, names, name):
            at += names.offsets[name + 1] - names.offsets[name]
            return pass_over(data, at, stop, table, WORD, False) == stop
    return False


@loop
def _cut_phrase(data: Bytes, start: int, stop: int, phrases: Phrases, phrase: int, where: int) -> int:
    """Take a phrase, with a space at either side, out of data[start : stop] in place; where the line ends then."""
    write = at = start
    length = phrases.offsets[phrase + 1] - phrases.offsets[phrase]
    while at < stop:
        begin = at
        if data[at] == 0x20 and stands_at(data, at + 1, stop, phrases, phrase):
            begin = at + 1
        elif not stands_at(data, at, stop, phrases, phrase):
            begin = -1
        if begin >= 0 and (where != 1 or begin == start) and (where != 2 or begin + length == stop):
            at = begin + length
            if where != 2 and at < stop and data[at] == 0x20:
                at += 1
            if where == 0:
                data[write] = 0x20
                write += 1
            continue
        data[write] = data[at]
        write += 1
        at += 1
    return write


@loop
def modify(
    data: Bytes,
    lines: Spans,
    table: Bytes,
    names: Phrases,
    phrases: Phrases,
    order: Offsets,
    where: Offsets,
    max_upper_case: float,
    max_numeric: float,
    counters: bool,
    min_words: int,
    max_phrase_words: int,
    result: Bytes,
    result_offsets: Offsets,
    removed_lines: Offsets,
    removed_words: Offsets,
    all_words: Offsets,
) -> int:
    """Rewrite every text into `result`; its size."""
    size = 0
    for text in range(len(lines.offsets) - 1):
        result_offsets[text] = size
        lines_left = 0
        for line in range(lines.offsets[text], lines.offsets[text + 1]):
            start, stop, characters = lines.starts[line], lines.ends[line], lines.characters[line]
            words = count_words(data, start, stop, table)
            all_words[text] += words
            if stop > start and (
                words < min_words
                or (counters and _is_counter(data, start, stop, table, names))
                or (_digits_end(data, start, stop) - start) > max_numeric * characters
                or _upper_case(data, start, stop, characters, table) > max_upper_case * characters
            ):
                removed_lines[text] += 1
                removed_words[text] += words
                continue
            before = size
            if lines_left:
                result[size] = 0x0A
                size += 1
            begin = size
            size = copy_span(data, start, stop, result, size)
            if 0 < words <= max_phrase_words and find_phrases(result, begin, size, phrases):
                for phrase in order:
                    size = _cut_phrase(result, begin, size, phrases, phrase, where[phrase])
                if size - begin < stop - start:
                    left = count_words(result, begin, size, table)
                    removed_words[text] += words - left
                    if left == 0:
                        removed_lines[text] += 1
                        size = before
                        continue
            lines_left += 1
    result_offsets[len(lines.offsets) - 1] = size
    return size


class LineModifiersStep(PerText):
    """The line rules of DCLM and OLMo 3. Rewrites the text, and removes documents that lose too many words."""

    rate = 32
    decides: ClassVar[frozenset[str]] = frozenset({"max_removed_words"})

    max_upper_case: float = Field(
        default=0.5, ge=0, le=1, description="a line with a larger share of upper-case letters is dropped"
    )
    max_numeric: float = Field(
        default=0.999999, ge=0, le=1, description="a line that begins with a larger share of digits is dropped"
    )
    counters: bool = Field(default=True, description="drop lines such as `1,204 likes` or `3.5K shares`")
    min_words: int = Field(default=2, ge=0, description="a line with fewer white-space words is dropped")
    phrases: dict[str, Literal["any", "prefix", "suffix"]] = Field(
        default={"items in cart": "any", "Read more...": "suffix", "Sign-in": "prefix"},
        description="phrases cut out of short lines: where they stand, at the beginning, at the end, or anywhere",
    )
    max_phrase_words: int = Field(default=10, ge=0, description="phrases are cut out of lines of at most so many words")
    max_removed_words: float = Field(
        default=0.05, ge=0, le=1, description="largest share of words that a document may lose"
    )

    @field_validator("phrases")
    @classmethod
    def _long_enough(cls, phrases: dict[str, str]) -> dict[str, str]:
        if len(phrases) > 64 or any(len(phrase.encode()) < 2 for phrase in phrases):
            raise ValueError("expected at most 64 phrases of two bytes or more")
        return phrases

    @model_validator(mode="after")
    def _has_phrases(self) -> LineModifiersStep:
        if not self.phrases:
            self.refuse("max_phrase_words", because="there are no `phrases` to cut out")
        return self

    def writes(self) -> tuple[str, ...]:
        return ("text", "_removed_lines", "_removed_word_share")

    def measure(self, texts: Texts) -> dict[str, Any]:

        lines = lines_of(texts)
        names = Phrases.of(COUNTED, ignore_case=True)
        phrases = Phrases.of(list(self.phrases), ignore_case=False)
        result = np.empty(texts.bytes, np.uint8)
        offsets = np.zeros(len(texts) + 1, np.int64)
        removed_lines, removed_words, all_words = np.zeros((3, len(texts)), np.int64)
        size = modify(
            texts.data,
            lines,
            character_flags(),
            names,
            phrases,
            np.argsort(phrases.numbers),
            np.array([WHERE[where] for where in self.phrases.values()], np.int64)[phrases.numbers],
            self.max_upper_case,
            self.max_numeric,
            self.counters,
            self.min_words,
            self.max_phrase_words,
            result,
            offsets,
            removed_lines,
            removed_words,
            all_words,
        )
        return {
            "text": Texts(result[:size], offsets),
            "_removed_lines": removed_lines,
            "_removed_word_share": per(removed_words, all_words),
        }

    def decide(self, columns: pyarrow.Table) -> list[Rule]:
        share = numbers(columns, "_removed_word_share")
        return [at_most("words in removed lines", share, self.max_removed_words)]
