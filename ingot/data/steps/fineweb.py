"""The step `fineweb`: the rules that FineWeb adds to those of Gopher and C4 (Penedo et al. 2024, section 3.6).

Lines are what text.split("\n") gives, without the blank ones.

    punctuated lines             lines whose last character ends a sentence (any script) / lines
    short lines                  lines of at most 30 characters / lines
    duplicate line characters    characters of lines seen before / characters without newlines
    newlines per word            newlines / words
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow
from pydantic import Field

from ingot.data.native import Bytes, Marks, loop
from ingot.data.step import WORDS, PerText, Rule, Words, at_least, at_most, numbers, per
from ingot.data.text.characters import TERMINAL, character_flags, code_point
from ingot.data.text.lines import lines_of
from ingot.data.text.repeats import seen_before
from ingot.data.text.spans import Spans
from ingot.data.text.texts import Texts
from ingot.data.text.white_space import blank
from ingot.data.text.words import words_of


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


class FineWebStep(PerText):
    """The step `fineweb`: the rules that FineWeb adds (Penedo et al. 2024, section 3.6), counted as datatrove does."""

    rate = 70
    decides: ClassVar[frozenset[str]] = frozenset(
        {"min_punctuated_lines", "max_short_lines", "max_duplicate_line_characters", "max_newlines_per_word"}
    )

    words: Words = Field(default="whitespace", description=WORDS)
    short_line: int = Field(default=30, ge=0, description="a line of at most so many characters is short")
    min_punctuated_lines: float = Field(
        default=0.12, ge=0, le=1, description="smallest share of lines that end in terminal punctuation"
    )
    max_short_lines: float = Field(default=0.67, ge=0, le=1, description="largest share of short lines")
    max_duplicate_line_characters: float = Field(
        default=0.01, ge=0, le=1, description="largest share of characters in lines seen before"
    )
    max_newlines_per_word: float = Field(default=0.3, ge=0, description="most newlines per word")

    def writes(self) -> tuple[str, ...]:
        return (
            "_fineweb_lines",
            "_fineweb_punctuated_lines",
            "_fineweb_short_lines",
            "_fineweb_duplicate_line_characters",
            "_fineweb_newlines_per_word",
        )

    def measure(self, texts: Texts) -> dict[str, Any]:
        every = lines_of(texts)
        blanks, punctuated = np.zeros((2, len(every.starts)), bool)
        look_at_lines(texts.data, every, character_flags(), blanks, punctuated)
        lines = every.select(~blanks)
        columns = {
            "_fineweb_lines": lines.per_text(),
            "_fineweb_punctuated_lines": per(every.sums(punctuated), lines.per_text()),
            "_fineweb_short_lines": per(lines.sums(lines.characters <= self.short_line), lines.per_text()),
            "_fineweb_duplicate_line_characters": per(seen_before(lines)[1], every.sums(every.characters)),
            "_fineweb_newlines_per_word": per(every.per_text() - 1, words_of(texts, self.words).per_text()),
        }
        return columns

    def decide(self, columns: pyarrow.Table) -> list[Rule]:
        return [
            Rule("empty text", numbers(columns, "_fineweb_lines") == 0),
            at_least(
                "lines ending in punctuation", numbers(columns, "_fineweb_punctuated_lines"), self.min_punctuated_lines
            ),
            at_most("short lines", numbers(columns, "_fineweb_short_lines"), self.max_short_lines),
            at_most(
                "characters in duplicate lines",
                numbers(columns, "_fineweb_duplicate_line_characters"),
                self.max_duplicate_line_characters,
            ),
            at_most("newlines per word", numbers(columns, "_fineweb_newlines_per_word"), self.max_newlines_per_word),
        ]
