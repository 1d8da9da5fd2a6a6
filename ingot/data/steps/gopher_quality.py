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

from ingot.data.native import Bytes, Hashes, Marks, Offsets, hash_span, kernel, load_8, loop
from ingot.data.step import WORDS, PerText, Rule, Words, at_least, at_most, numbers, per
from ingot.data.text.blocks import EIGHT, first_equal
from ingot.data.text.characters import LETTER, PLAIN, character_flags
from ingot.data.text.lines import lines_of
from ingot.data.text.spans import SEED, Spans
from ingot.data.text.texts import Texts
from ingot.data.text.white_space import strip
from ingot.data.text.words import words_of


@loop
def count_signs(data: Bytes, offsets: Offsets, hashes: Offsets, ellipses: Offsets) -> None:
    """`#`, and `...` or `…`, as str.count finds them: from the left, without overlap."""
    for text in range(len(offsets) - 1):
        dots = 0
        at, stop = np.uint64(offsets[text]), np.uint64(offsets[text + 1])
        while at < stop:
            if at + EIGHT <= stop and dots == 0:
                block = load_8(data, int(np.int64(at)))
                if not (
                    first_equal(block, np.uint64(0x2E))
                    | first_equal(block, np.uint64(0x23))
                    | first_equal(block, np.uint64(0xE2))
                ):
                    at += EIGHT
                    continue
            byte = data[at]
            dots = dots + 1 if byte == 0x2E else 0
            if dots == 3:
                ellipses[text] += 1
                dots = 0
            elif byte == 0x23:
                hashes[text] += 1
            elif byte == 0xE2 and data[at + np.uint64(1)] == 0x80 and data[at + np.uint64(2)] == 0xA6:
                ellipses[text] += 1
            at += np.uint64(1)


@loop
def look_at_lines(data: Bytes, lines: Spans, table: Bytes, bullets: Marks, trailing: Marks) -> None:
    """For each line whether it begins with a bullet and whether it ends in an ellipsis, white space apart."""
    for line in range(len(lines.starts)):
        at, end = strip(data, lines.starts[line], lines.ends[line], table)
        if at == end:
            continue
        byte = data[at]
        bullets[line] = byte == 0x2D or (byte == 0xE2 and data[at + 1] == 0x80 and data[at + 2] == 0xA2)
        if end - at >= 3:
            first, second, third = data[end - 3], data[end - 2], data[end - 1]
            trailing[line] = (first == 0x2E and second == 0x2E and third == 0x2E) or (
                first == 0xE2 and second == 0x80 and third == 0xA6
            )


@kernel
def count_words(
    words: Spans,
    wanted: Hashes,
    distinct: bool,
    plain: Offsets,
    plain_characters: Offsets,
    with_letter: Offsets,
    stop_words: Offsets,
) -> None:
    """Words that are not symbols alone and their characters, words with a letter, and words with a wanted hash (each hash
    once if `distinct`)."""
    flags, hashes = words.flags, words.hashes
    seen = np.empty(len(wanted), np.bool_)
    may_be = np.uint64(0)  # the last six bits of the wanted hashes: most words are passed over with one look
    for number in range(len(wanted)):
        may_be |= np.uint64(1) << (wanted[number] & np.uint64(63))
    for text in range(len(words.offsets) - 1):
        for number in range(len(wanted)):
            seen[number] = False
        for word in range(words.offsets[text], words.offsets[text + 1]):
            if flags[word] & PLAIN:
                plain[text] += 1
                plain_characters[text] += words.characters[word]
            with_letter[text] += (flags[word] & LETTER) != 0
            if not may_be >> (hashes[word] & np.uint64(63)) & np.uint64(1):
                continue
            for number in range(len(wanted)):
                if hashes[word] == wanted[number] and not (distinct and seen[number]):
                    seen[number] = True
                    stop_words[text] += 1


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
