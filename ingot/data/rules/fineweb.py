"""The rules that FineWeb adds to those of Gopher and C4 (Penedo et al. 2024, section 3.6).

Lines are what text.split("\\n") gives, without the blank ones.

    punctuated lines             lines whose last character ends a sentence (any script) / lines
    short lines                  lines of at most 30 characters / lines
    duplicate line characters    characters of lines seen before / characters without newlines
    newlines per word            newlines / words
"""

from __future__ import annotations

import numpy as np
import pyarrow

from ingot.data.native import loop
from ingot.data.rules.config import FineWebStep
from ingot.data.rules.gopher_quality import per
from ingot.data.rules.repeats import seen_before
from ingot.data.step import PerDocument, Rule, at_least, at_most, numbers
from ingot.data.text.arrays import Bytes, Marks, Places
from ingot.data.text.characters import TERMINAL, character_flags, code_point
from ingot.data.text.lines import lines_of
from ingot.data.text.texts import Texts
from ingot.data.text.white_space import blank
from ingot.data.text.words import words_of


@loop
def _look_at_lines(data: Bytes, starts: Places, ends: Places, table: Bytes, blanks: Marks, punctuated: Marks) -> None:
    """For each line whether it is blank and whether its last character ends a sentence."""
    for line in range(len(starts)):
        blanks[line] = blank(data, starts[line], ends[line], table)
        if not blanks[line]:
            last = ends[line] - 1
            while data[last] & 0xC0 == 0x80:
                last -= 1
            punctuated[line] = (table[code_point(data, last)] & TERMINAL) != 0


class FineWeb(PerDocument[FineWebStep]):
    """See the module."""

    def annotate(self, documents: pyarrow.Table) -> dict[str, pyarrow.Array]:
        """See PerDocument."""
        texts = Texts.of(documents.column("text"))
        every = lines_of(texts)
        blanks, punctuated = np.zeros((2, len(every)), bool)
        _look_at_lines(texts.data, every.starts, every.ends, character_flags(), blanks, punctuated)
        lines = every.select(~blanks)
        columns = {
            "_fineweb_lines": lines.per_text(),
            "_fineweb_punctuated_lines": per(every.sums(punctuated), lines.per_text()),
            "_fineweb_short_lines": per(lines.sums(lines.characters <= self.config.short_line), lines.per_text()),
            "_fineweb_duplicate_line_characters": per(seen_before(lines)[1], every.sums(every.characters)),
            "_fineweb_newlines_per_word": per(every.per_text() - 1, words_of(texts, self.config.words).per_text()),
        }
        return {name: pyarrow.array(values) for name, values in columns.items()}

    def rules(self, columns: pyarrow.Table) -> list[Rule]:
        """See Step."""
        limits = self.config
        return [
            Rule("empty text", numbers(columns, "_fineweb_lines") == 0),
            at_least(
                "lines ending in punctuation",
                numbers(columns, "_fineweb_punctuated_lines"),
                limits.min_punctuated_lines,
            ),
            at_most("short lines", numbers(columns, "_fineweb_short_lines"), limits.max_short_lines),
            at_most(
                "characters in duplicate lines",
                numbers(columns, "_fineweb_duplicate_line_characters"),
                limits.max_duplicate_line_characters,
            ),
            at_most("newlines per word", numbers(columns, "_fineweb_newlines_per_word"), limits.max_newlines_per_word),
        ]
