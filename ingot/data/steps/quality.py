"""The step `quality` gives every document a score in [0, 1] by a plain formula.

Prose, the mean of four parts that are each full at what good running text reaches:
    sentences    share of non-empty lines that end in . ? ! : or a closing quote or bracket after them   / 0.6
    language     share of words that are English function words                                         / 0.35
    letters      share of the non-space characters that are letters, from 0.6                            to 0.85
    length       log2 of the number of words, from 50                                                   to 1600

Code, the mean of four:
    explained    share of the characters in comments and docstrings                                      / 0.25
    lines        share of non-empty lines of at most 100 characters, from 0.9                            to 1
    names        share of the non-space characters that are letters, from 0.5                            to 0.75
    length       log2 of the number of lines, from 8                                                    to 256

It is not a learned classifier (for those see classify.py): it orders documents of one kind, its values mean nothing
across kinds.
"""

from __future__ import annotations

import numpy as np
import pyarrow
import pyarrow.compute
from numpy.typing import NDArray
from pydantic import Field

from ingot.data.step import PerDocument, Rule, at_least, numbers
from ingot.data.text.profile import (
    CHARACTERS,
    ENDED,
    EXPLAINED,
    FUNCTION_WORDS,
    LETTERS,
    LINES,
    SHORT,
    VISIBLE,
    WORDS,
    profile,
)
from ingot.data.text.texts import Texts

Numbers = NDArray[np.float64]


def ramp(value: Numbers, low: float, high: float) -> Numbers:
    """0 up to `low`, 1 from `high`, straight between."""
    return np.clip((value - low) / (high - low), 0.0, 1.0)


def share(part: Numbers, whole: Numbers) -> Numbers:
    """`part / whole`, 0 where there is nothing."""
    return np.asarray(part / np.maximum(whole, 1))


def prose_quality(counts: NDArray[np.int64]) -> Numbers:
    """The score of prose, from the counts of profile.py."""
    columns = counts.astype(np.float64).T
    words = np.maximum(columns[WORDS], 1)
    parts = (
        ramp(share(columns[ENDED], columns[LINES]), 0, 0.6),
        ramp(columns[FUNCTION_WORDS] / words, 0, 0.35),
        ramp(share(columns[LETTERS], columns[VISIBLE]), 0.6, 0.85),
        ramp(np.log2(words), np.log2(50), np.log2(1600)),
    )
    return np.where(columns[WORDS] > 0, sum(parts) / len(parts), 0.0)


def code_quality(counts: NDArray[np.int64]) -> Numbers:
    """The score of code, from the counts of profile.py."""
    columns = counts.astype(np.float64).T
    parts = (
        ramp(share(columns[EXPLAINED], columns[CHARACTERS]), 0, 0.25),
        ramp(share(columns[SHORT], columns[LINES]), 0.9, 1),
        ramp(share(columns[LETTERS], columns[VISIBLE]), 0.5, 0.75),
        ramp(np.log2(np.maximum(columns[LINES], 1)), np.log2(8), np.log2(256)),
    )
    return np.where(columns[LINES] > 0, sum(parts) / len(parts), 0.0)


class QualityStep(PerDocument):
    """Fill the `quality` column with a score in [0, 1] by a plain formula (see quality.py): better data can come late."""

    rate = 64
    decides = frozenset({"minimum"})

    minimum: float = Field(default=0.0, ge=0, le=1, description="documents with a lower score are removed")

    def reads(self) -> tuple[str, ...]:
        return (*super().reads(), "kind")

    def writes(self) -> tuple[str, ...]:
        return ("quality",)

    def annotate(self, documents: pyarrow.Table) -> dict[str, pyarrow.Array]:
        counts = profile(Texts.of(documents.column("text")))
        is_code = pyarrow.compute.equal(documents.column("kind"), "code").fill_null(False).to_numpy()
        return {"quality": pyarrow.array(np.where(is_code, code_quality(counts), prose_quality(counts)))}

    def decide(self, columns: pyarrow.Table) -> list[Rule]:
        return [at_least("score", numbers(columns, "quality"), self.minimum)]
