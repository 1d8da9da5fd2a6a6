"""The same few words over and over, without a pause: what a broken page or a looping generator writes.

    repetitions  =  the largest r such that some sequence of k words (1 <= k <= 13) stands r times one after the other

OLMo 3 removes texts with 32 repetitions or more (of tokenizer tokens; words here). A sequence of k words stands r times in a
row exactly if (r - 1) · k words one after the other equal the word k places before.
"""

from __future__ import annotations

import numpy as np
import pyarrow

from ingot.data.native import loop
from ingot.data.rules.config import RepeatedNgramsStep
from ingot.data.step import PerDocument, Rule, numbers
from ingot.data.text.arrays import Hashes, Places
from ingot.data.text.texts import Texts
from ingot.data.text.words import words_of


@loop
def _repetitions(hashes: Hashes, offsets: Places, longest: int, result: Places) -> None:
    """The most repetitions in each text."""
    for text in range(len(offsets) - 1):
        first, last = offsets[text], offsets[text + 1]
        best = 1 if last > first else 0
        for size in range(1, longest + 1):
            # Only a streak of best * size equal words or more counts, and it covers every so manieth word.
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


class RepeatedNgrams(PerDocument[RepeatedNgramsStep]):
    """See the module."""

    def annotate(self, documents: pyarrow.Table) -> dict[str, pyarrow.Array]:
        """See PerDocument."""
        words = words_of(Texts.of(documents.column("text")), self.config.words)
        result = np.zeros(len(documents), np.int64)
        _repetitions(words.hashes, words.offsets, self.config.longest_ngram, result)
        return {"_repetitions": pyarrow.array(result)}

    def rules(self, columns: pyarrow.Table) -> list[Rule]:
        """See Step."""
        repetitions = numbers(columns, "_repetitions")
        limit = self.config.min_repetitions
        return [Rule("repetitions in a row", repetitions >= limit, repetitions, f">= {limit}")]
