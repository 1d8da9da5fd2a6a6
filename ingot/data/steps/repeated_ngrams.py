"""The step `repeated_ngrams` removes texts that repeat the same few words many times in a row.

A broken page or a looping generator writes such texts.

    repetitions  =  the largest r such that some sequence of k words (1 <= k <= 13) stands r times one after the other

OLMo 3 removes texts with 32 repetitions or more (of tokenizer tokens; words here). A sequence of k words stands r times in a
row exactly if (r - 1) · k words one after the other equal the word k words before.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow
from pydantic import Field

from ingot.data.native import Offsets, loop
from ingot.data.step import WORDS, PerText, Rule, Words, numbers
from ingot.data.text.spans import Spans
from ingot.data.text.texts import Texts
from ingot.data.text.words import words_of


@loop
def repetitions(words: Spans, longest: int, result: Offsets) -> None:
    """The most repetitions in each text."""
    hashes, offsets = words.hashes, words.offsets
    for text in range(len(offsets) - 1):
        first, last = offsets[text], offsets[text + 1]
        best = 1 if last > first else 0
        for size in range(1, longest + 1):
            # Only a streak of best * size equal words or more counts, so only every (best * size)-th word needs a look.
            word = first + size + best * size - 1
            while word < last:
                if hashes[word] != hashes[word - size]:
                    word += best * size
                    continue
                start = end = word
                while start > first + size and hashes[start - 1] == hashes[start - 1 - size]:
                    start -= 1
                while end < last and hashes[end] == hashes[end - size]:
                    end += 1
                best = max(best, (end - start) // size + 1)
                word = end + best * size
        result[text] = best


class RepeatedNgramsStep(PerText):
    """The same few words many times in a row (OLMo 3: 32 times, 1 to 13 tokens)."""

    rate = 97
    decides: ClassVar[frozenset[str]] = frozenset({"min_repetitions"})

    words: Words = Field(default="whitespace", description=WORDS)
    longest_ngram: int = Field(default=13, ge=1, le=100, description="sequences of up to so many words are looked for")
    min_repetitions: int = Field(
        default=32, ge=2, description="a document is removed if a sequence stands so many times in a row, or more"
    )

    def writes(self) -> tuple[str, ...]:
        return ("_repetitions",)

    def measure(self, texts: Texts) -> dict[str, Any]:
        words = words_of(texts, self.words)
        result = np.zeros(len(texts), np.int64)
        repetitions(words, self.longest_ngram, result)
        return {"_repetitions": result}

    def decide(self, columns: pyarrow.Table) -> list[Rule]:
        repetitions = numbers(columns, "_repetitions")
        limit = self.min_repetitions
        return [Rule("repetitions in a row", repetitions >= limit, repetitions, f">= {limit}")]
