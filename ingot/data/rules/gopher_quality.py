"""The quality rules of Gopher: too short, too strange, or not language (Rae et al. 2021, appendix A.1).

    words per text, mean length      of words that are not made of symbols alone
    hash signs, ellipses             occurrences / words
    bullets, ellipses at the end     lines / lines (str.splitlines)
    words with a letter              words / words
    stop words                       different ones, or occurrences

Where the paper leaves room the counting is that of datatrove, symbols and lines included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow

from ingot.data.native import hash_span, kernel, load_8, loop
from ingot.data.rules.config import GopherQualityStep
from ingot.data.step import PerDocument, Rule, at_least, at_most, numbers
from ingot.data.text.arrays import Bytes, Hashes, Marks, Places, Sizes
from ingot.data.text.blocks import EIGHT, first_equal
from ingot.data.text.characters import LETTER, PLAIN, character_flags
from ingot.data.text.lines import lines_of
from ingot.data.text.spans import SEED
from ingot.data.text.texts import Texts
from ingot.data.text.white_space import strip
from ingot.data.text.words import words_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


@loop
def _count_signs(data: Bytes, offsets: Places, hashes: Places, ellipses: Places) -> None:
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
def _look_at_lines(data: Bytes, starts: Places, ends: Places, table: Bytes, bullets: Marks, trailing: Marks) -> None:
    """For each line whether it begins with a bullet and whether it ends in an ellipsis, white space apart."""
    for line in range(len(starts)):
        at, end = strip(data, starts[line], ends[line], table)
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
def _count_words(
    words: Places,
    hashes: Hashes,
    characters: Sizes,
    flags: Bytes,
    wanted: Hashes,
    distinct: bool,
    plain: Places,
    plain_characters: Places,
    with_letter: Places,
    stop_words: Places,
) -> None:
    """Words that are not symbols alone and their characters, words with a letter, and words with a wanted hash (each hash
    once if `distinct`); text t has the words words[t] … words[t + 1] - 1."""
    seen = np.empty(len(wanted), np.bool_)
    may_be = np.uint64(0)  # the last six bits of the wanted hashes: most words are passed over with one look
    for number in range(len(wanted)):
        may_be |= np.uint64(1) << (wanted[number] & np.uint64(63))
    for text in range(len(words) - 1):
        for number in range(len(wanted)):
            seen[number] = False
        for word in range(words[text], words[text + 1]):
            if flags[word] & PLAIN:
                plain[text] += 1
                plain_characters[text] += characters[word]
            with_letter[text] += (flags[word] & LETTER) != 0
            if not may_be >> (hashes[word] & np.uint64(63)) & np.uint64(1):
                continue
            for number in range(len(wanted)):
                if hashes[word] == wanted[number] and not (distinct and seen[number]):
                    seen[number] = True
                    stop_words[text] += 1


def per(counts: NDArray[np.int64], total: NDArray[np.int64]) -> NDArray[np.float64]:
    """Shares; 0 of 0 is 0."""
    return np.divide(counts, total, out=np.zeros(len(counts)), where=total > 0)


class GopherQuality(PerDocument[GopherQualityStep]):
    """See the module."""

    def annotate(self, documents: pyarrow.Table) -> dict[str, pyarrow.Array]:
        """See PerDocument."""
        texts = Texts.of(documents.column("text"))
        words = words_of(texts, self.config.words)
        lines = lines_of(texts, "splitlines")
        hashes, ellipses, plain, characters, with_letter, stop_words = np.zeros((6, len(texts)), np.int64)
        _count_signs(texts.data, texts.offsets, hashes, ellipses)
        bullets, trailing = np.zeros((2, len(lines)), bool)
        _look_at_lines(texts.data, lines.starts, lines.ends, character_flags(), bullets, trailing)
        wanted = [np.frombuffer(word.encode(), np.uint8) for word in dict.fromkeys(self.config.stop_words)]
        _count_words(
            words.offsets,
            words.hashes,
            words.characters,
            words.flags,
            np.array([hash_span(word, 0, len(word), SEED) for word in wanted], np.uint64),
            self.config.count_stop_words == "distinct",
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
        return {name: pyarrow.array(values) for name, values in columns.items()}

    def rules(self, columns: pyarrow.Table) -> list[Rule]:
        """See Step."""
        limits = self.config
        words = numbers(columns, "_gopher_words")
        mean_length = numbers(columns, "_gopher_mean_word_length")
        return [
            at_least("words", words, limits.min_words),
            at_most("words", words, limits.max_words),
            at_least("mean word length", mean_length, limits.min_mean_word_length),
            at_most("mean word length", mean_length, limits.max_mean_word_length),
            at_most("hash signs per word", numbers(columns, "_gopher_hashes_per_word"), limits.max_hashes_per_word),
            at_most("ellipses per word", numbers(columns, "_gopher_ellipses_per_word"), limits.max_ellipses_per_word),
            at_most("bullet lines", numbers(columns, "_gopher_bullet_lines"), limits.max_bullet_lines),
            at_most(
                "lines ending in an ellipsis", numbers(columns, "_gopher_ellipsis_lines"), limits.max_ellipsis_lines
            ),
            at_least("words with a letter", numbers(columns, "_gopher_letter_words"), limits.min_letter_words),
            at_least("stop words", numbers(columns, "_gopher_stop_words"), limits.min_stop_words),
        ]
