r"""The step `bad_words` removes pages with a word of a list, as C4 does.

C4 used the "List of Dirty, Naughty, Obscene and Otherwise Bad Words".

A phrase counts where it stands between characters that are not \w (or the ends of the text); in Japanese, Thai and
Chinese anywhere. Letters match in either case. Of the documents with such words `keep_share` stays, picked by a hash of the
text, so that a model still sees the words.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow
import pyarrow.compute
from pydantic import Field

from ingot.data.native import Bytes, Offsets, hash_span, loop
from ingot.data.read.streams import read_list
from ingot.data.step import PerDocument, Rule, numbers
from ingot.data.text.characters import WORD, character_flags, code_point
from ingot.data.text.phrases import Phrases, next_place, stands_at
from ingot.data.text.texts import Texts
from ingot.workspace.files import fingerprint

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
def find(data: Bytes, offsets: Offsets, table: Bytes, phrases: Phrases, separated: bool, counts: Offsets) -> None:
    """Count how often a phrase stands in each text."""
    for text in range(len(offsets) - 1):
        begin, stop = offsets[text], offsets[text + 1]
        at = next_place(data, begin, stop, phrases.may_begin)
        while at < stop:
            counts[text] += _stands(data, at, begin, stop, table, phrases, separated)
            at = next_place(data, at + 1, stop, phrases.may_begin)


class BadWordsStep(PerDocument):
    """Remove documents with a word of the user's list, as C4 does with the LDNOOBW lists."""

    rate = 169
    decides: ClassVar[frozenset[str]] = frozenset({"keep_share"})

    file: str = Field(description="the list: one word or phrase a line, .gz allowed, `#` begins a comment")
    language: str = Field(
        default="en", description="language of the list; in ja, th and zh words need not stand between spaces or signs"
    )
    keep_share: float = Field(
        default=0.0, ge=0, le=1, description="share of the documents with such words that stays, by a hash of the text"
    )

    def writes(self) -> tuple[str, ...]:
        return ("_bad_words", "_bad_words_draw")

    def outside(self) -> dict[str, str]:
        return {self.file: fingerprint(Path(self.file))}

    @cached_property
    def _listed(self) -> list[str]:
        return [phrase for phrase in read_list(self.file) if len(phrase.encode()) > 1]

    @cached_property
    def _phrases(self) -> Phrases:
        return Phrases.of([phrase.lower() for phrase in self._listed], ignore_case=True)

    def annotate(self, documents: pyarrow.Table) -> dict[str, pyarrow.Array]:
        texts = original = Texts.of(documents.column("text"))
        if any(not sign.isascii() and sign.lower() != sign.upper() for phrase in self._listed for sign in phrase):
            texts = Texts.of(pyarrow.compute.utf8_lower(texts.column()))
        counts = np.zeros(len(texts), np.int64)
        separated = self.language not in WITHOUT_SPACES
        find(texts.data, texts.offsets, character_flags(), self._phrases, separated, counts)
        draws = np.full(len(texts), np.nan)
        for text in np.flatnonzero(counts):
            start, end = original.offsets[text], original.offsets[text + 1]
            draws[text] = float(hash_span(original.data, start, end, DRAW_SEED)) / 2**64
        return {"_bad_words": pyarrow.array(counts), "_bad_words_draw": pyarrow.array(draws, mask=np.isnan(draws))}

    def decide(self, columns: pyarrow.Table) -> list[Rule]:
        counts, draws = numbers(columns, "_bad_words"), numbers(columns, "_bad_words_draw")
        return [Rule("bad words", (counts > 0) & ~(draws < self.keep_share), counts)]

    def say(self) -> list[str]:
        return [f"bad_words: {len(self._listed)} phrases from {self.file}"]
