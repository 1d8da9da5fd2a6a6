"""Pages with a word of a list go, as C4 does with the "List of Dirty, Naughty, Obscene and Otherwise Bad Words".

A phrase counts where it stands between characters that are not \\w (or the ends of the text); in Japanese, Thai and
Chinese anywhere. Letters match in either case. Of the documents with such words `keep_share` stays, picked by a hash of the
text, so that the words are not unknown to a model altogether.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow
import pyarrow.compute

from ingot.data.native import hash_span, loop
from ingot.data.rules.config import BadWordsStep
from ingot.data.rules.lists import read_list
from ingot.data.step import PerDocument, Rule, numbers
from ingot.data.text.arrays import Bytes, Places
from ingot.data.text.characters import WORD, character_flags, code_point
from ingot.data.text.phrases import Phrases, next_place, stands_at
from ingot.data.text.texts import Texts

WITHOUT_SPACES = frozenset({"ja", "th", "zh"})
DRAW_SEED = np.uint64(0x0BADC0DE)


@loop
def _is_word(data: Bytes, at: int, table: Bytes) -> bool:
    """Is the character that the byte at `at` belongs to one of \\w?"""
    while data[at] & 0xC0 == 0x80:
        at -= 1
    return (table[code_point(data, at)] & WORD) != 0


@loop
def _stands(data: Bytes, at: int, begin: int, stop: int, table: Bytes, phrases: Phrases, separated: bool) -> bool:
    """Does a phrase stand at `at`, in the text from `begin` to `stop`?"""
    if separated and at > begin and _is_word(data, at - 1, table):
        return False
    pair = np.uint64(data[at]) << np.uint64(8) | np.uint64(data[at + 1])
    first = np.int64(phrases.begins[pair])
    for phrase in range(first, first + np.int64(phrases.counts[pair])):
        end = at + phrases.offsets[phrase + 1] - phrases.offsets[phrase]
        if stands_at(data, at, stop, phrases, phrase) and not (separated and end < stop and _is_word(data, end, table)):
            return True
    return False


@loop
def _find(data: Bytes, offsets: Places, table: Bytes, phrases: Phrases, separated: bool, counts: Places) -> None:
    """Count the places in each text where a phrase stands."""
    for text in range(len(offsets) - 1):
        begin, stop = offsets[text], offsets[text + 1]
        at = next_place(data, begin, stop, phrases.may_begin)
        while at < stop:
            counts[text] += _stands(data, at, begin, stop, table, phrases, separated)
            at = next_place(data, at + 1, stop, phrases.may_begin)


class BadWords(PerDocument[BadWordsStep]):
    """See the module."""

    @cached_property
    def _listed(self) -> list[str]:
        return [phrase for phrase in read_list(self.config.file) if len(phrase.encode()) > 1]

    @cached_property
    def _phrases(self) -> Phrases:
        return Phrases.of([phrase.lower() for phrase in self._listed], ignore_case=True)

    def annotate(self, documents: pyarrow.Table) -> dict[str, pyarrow.Array]:
        """See PerDocument."""
        texts = original = Texts.of(documents.column("text"))
        if any(not sign.isascii() and sign.lower() != sign.upper() for phrase in self._listed for sign in phrase):
            texts = Texts.of(pyarrow.compute.utf8_lower(texts.column()))
        counts = np.zeros(len(texts), np.int64)
        separated = self.config.language not in WITHOUT_SPACES
        _find(texts.data, texts.offsets, character_flags(), self._phrases, separated, counts)
        draws = np.full(len(texts), np.nan)
        for text in np.flatnonzero(counts):
            start, end = original.offsets[text], original.offsets[text + 1]
            draws[text] = float(hash_span(original.data, start, end, DRAW_SEED)) / 2**64
        return {
            "_bad_words": pyarrow.array(counts),
            "_bad_words_draw": pyarrow.array(draws, mask=np.isnan(draws)),
        }

    def rules(self, columns: pyarrow.Table) -> list[Rule]:
        """See Step."""
        counts, draws = numbers(columns, "_bad_words"), numbers(columns, "_bad_words_draw")
        return [Rule("bad words", (counts > 0) & ~(draws < self.config.keep_share), counts)]

    def say(self) -> list[str]:
        """See Step."""
        return [f"bad_words: {len(self._listed)} phrases from {self.config.file}"]
