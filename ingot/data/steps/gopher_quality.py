"""The step `gopher_quality`, the quality rules of Gopher: too short, too strange, or not language (Rae et al. 2021, A.1).

    words per text, mean length      of words that are not made of symbols alone
    hash signs, ellipses             occurrences / words
    bullets, ellipses at the end     lines / lines (str.splitlines)
    words with a letter              words / words
    stop words                       different ones, or occurrences

Where the paper leaves it open the counting is that of datatrove, symbols and lines included.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow
from pydantic import Field, model_validator

from ingot.data.native import hash_span
from ingot.data.rules.gopher_quality import count_signs, count_words, look_at_lines
from ingot.data.step import WORDS, PerText, Rule, Words, at_least, at_most, numbers, per
from ingot.data.text.characters import character_flags
from ingot.data.text.lines import lines_of
from ingot.data.text.spans import SEED
from ingot.data.text.texts import Texts
from ingot.data.text.words import words_of


class GopherQualityStep(PerText):
    """The quality rules of Gopher (Rae et al. 2021, table A1), counted as datatrove does."""

    rate = 51
    decides: ClassVar[frozenset[str]] = frozenset(
        {
            "min_words",
            "max_words",
            "min_mean_word_length",
            "max_mean_word_length",
            "max_hashes_per_word",
            "max_ellipses_per_word",
            "max_bullet_lines",
            "max_ellipsis_lines",
            "min_letter_words",
            "min_stop_words",
        }
    )

    words: Words = Field(default="whitespace", description=WORDS)
    min_words: int = Field(default=50, ge=0, description="fewest words that are not made of symbols alone")
    max_words: int = Field(default=100_000, ge=1, description="most words that are not made of symbols alone")
    min_mean_word_length: float = Field(default=3, ge=0, description="lowest mean length of those words")
    max_mean_word_length: float = Field(default=10, gt=0, description="highest mean length of those words")
    max_hashes_per_word: float = Field(default=0.1, ge=0, description="most `#` signs per word")
    max_ellipses_per_word: float = Field(default=0.1, ge=0, description="most `...` or `…` per word")
    max_bullet_lines: float = Field(
        default=0.9, ge=0, le=1, description="largest share of lines that start with `•` or `-`"
    )
    max_ellipsis_lines: float = Field(
        default=0.3, ge=0, le=1, description="largest share of lines that end in an ellipsis"
    )
    min_letter_words: float = Field(default=0.8, ge=0, le=1, description="smallest share of words with a letter")
    min_stop_words: int = Field(default=2, ge=0, description="fewest stop words")
    stop_words: list[str] = Field(
        default=["the", "be", "to", "of", "and", "that", "have", "with"],
        description="the stop words, in the case in which they must stand",
    )
    count_stop_words: Literal["distinct", "all"] = Field(
        default="distinct",
        description="how many different ones occur (datatrove), or how often they occur together (DCLM, OLMo 3)",
    )

    @model_validator(mode="after")
    def _asks_for_stop_words(self) -> GopherQualityStep:
        if self.min_stop_words == 0:
            self.refuse("stop_words", "count_stop_words", because="min_stop_words: 0 asks for none")
        return self

    def writes(self) -> tuple[str, ...]:
        return (
            "_gopher_words",
            "_gopher_mean_word_length",
            "_gopher_hashes_per_word",
            "_gopher_ellipses_per_word",
            "_gopher_bullet_lines",
            "_gopher_ellipsis_lines",
            "_gopher_letter_words",
            "_gopher_stop_words",
        )

    def measure(self, texts: Texts) -> dict[str, Any]:
        words = words_of(texts, self.words)
        lines = lines_of(texts, "splitlines")
        hashes, ellipses, plain, characters, with_letter, stop_words = np.zeros((6, len(texts)), np.int64)
        count_signs(texts.data, texts.offsets, hashes, ellipses)
        bullets, trailing = np.zeros((2, len(lines.starts)), bool)
        look_at_lines(texts.data, lines, character_flags(), bullets, trailing)
        wanted = [np.frombuffer(word.encode(), np.uint8) for word in dict.fromkeys(self.stop_words)]
        count_words(
            words,
            np.array([hash_span(word, 0, len(word), SEED) for word in wanted], np.uint64),
            self.count_stop_words == "distinct",
            plain,
            characters,
            with_letter,
            stop_words,
        )
        total = words.per_text()
        columns = {
            "_gopher_words": plain,
            "_gopher_mean_word_length": per(characters, plain),
            "_gopher_hashes_per_word": per(hashes, total),
            "_gopher_ellipses_per_word": per(ellipses, total),
            "_gopher_bullet_lines": per(lines.sums(bullets), lines.per_text()),
            "_gopher_ellipsis_lines": per(lines.sums(trailing), lines.per_text()),
            "_gopher_letter_words": per(with_letter, total),
            "_gopher_stop_words": stop_words,
        }
        return columns

    def decide(self, columns: pyarrow.Table) -> list[Rule]:
        words = numbers(columns, "_gopher_words")
        mean_length = numbers(columns, "_gopher_mean_word_length")
        return [
            at_least("words", words, self.min_words),
            at_most("words", words, self.max_words),
            at_least("mean word length", mean_length, self.min_mean_word_length),
            at_most("mean word length", mean_length, self.max_mean_word_length),
            at_most("hash signs per word", numbers(columns, "_gopher_hashes_per_word"), self.max_hashes_per_word),
            at_most("ellipses per word", numbers(columns, "_gopher_ellipses_per_word"), self.max_ellipses_per_word),
            at_most("bullet lines", numbers(columns, "_gopher_bullet_lines"), self.max_bullet_lines),
            at_most("lines ending in an ellipsis", numbers(columns, "_gopher_ellipsis_lines"), self.max_ellipsis_lines),
            at_least("words with a letter", numbers(columns, "_gopher_letter_words"), self.min_letter_words),
            at_least("stop words", numbers(columns, "_gopher_stop_words"), self.min_stop_words),
        ]
