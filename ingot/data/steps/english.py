"""The step `english` scores how English a text is, by its function words and its letters.

    score = min(1, share of words that are English function words / 0.2)
            x min(1, distinct function words / 6)
            x share of letters that are a-z

A word is a run of letters, lower case. The second factor is there because one short word (`to`, `be`, `no`) may be
frequent anywhere. On the 529 versions of the Universal Declaration of Human Rights the threshold 0.5 lets through
English and three languages made of English words (Nigerian Pidgin, Scots, Jamaican Creole), and nothing else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow
from numpy.typing import NDArray
from pydantic import Field

from ingot.data.step import PerText, Rule, at_least, numbers
from ingot.data.text.profile import DISTINCT, FUNCTION_WORDS, LATIN, LETTERS, WORDS, profile
from ingot.data.text.texts import Texts

FULL_SHARE = 0.2
FULL_DISTINCT = 6


def english_scores(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """0 (not English) to 1, from the counts of profile.py."""
    columns = counts.astype(np.float64).T
    share = columns[FUNCTION_WORDS] / np.maximum(columns[WORDS], 1)
    latin = np.minimum(columns[LATIN], columns[LETTERS]) / np.maximum(columns[LETTERS], 1)
    distinct = columns[DISTINCT] / FULL_DISTINCT
    return np.asarray(np.minimum(1, share / FULL_SHARE) * np.minimum(1, distinct) * latin)


class EnglishStep(PerText):
    """Keep English, recognised by the share of function words and of Latin letters (see english.py). Needs no model."""

    rate = 66
    decides = frozenset({"minimum"})

    minimum: float = Field(default=0.5, ge=0, le=1, description="a document with a lower English score is removed")

    def writes(self) -> tuple[str, ...]:
        return ("english",)

    def measure(self, texts: Texts) -> dict[str, Any]:

        return {"english": english_scores(profile(texts))}

    def decide(self, columns: pyarrow.Table) -> list[Rule]:
        return [at_least("English score", numbers(columns, "english"), self.minimum)]
