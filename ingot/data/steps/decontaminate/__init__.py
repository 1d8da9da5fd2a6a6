"""The step `decontaminate` removes documents that share word n-grams with an eval, as GPT-3, datatrove and Marin do.

Paper: Brown et al. 2020 (GPT-3), appendix C. Settings of others, to copy:

    GPT-3         ngram_words: 13
    datatrove     ngram_words: 12
    Marin         ngram_words: 13, min_share: 0.5

What finds evals approximately, with their answers, is the step `decon`.
"""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

import numpy as np
import pyarrow
from numpy.typing import NDArray
from pydantic import Field

from ingot.data.contamination.counting import NgramCounts
from ingot.data.contamination.evals import eval_texts
from ingot.data.contamination.matches import rule
from ingot.data.contamination.step import ContaminationStep
from ingot.data.step import Rule
from ingot.data.steps.decontaminate.overlap import OverlapIndex, build_index, hits_of, match_texts, ngram_weights
from ingot.data.text.texts import Texts


class DecontaminateStep(ContaminationStep):
    """Remove documents that hold an eval: that share an n-gram of lower-case words with it, or a share of them.

    Of `against` every string of a row is searched for.
    """

    rate = 74
    decides: ClassVar[frozenset[str]] = frozenset({"min_share"})

    ngram_words: int = Field(
        default=8,
        ge=1,
        le=50,
        description="words in an n-gram. 13 in GPT-3 (Brown et al. 2020), 12 in datatrove; 8 is stricter",
    )
    min_share: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="share of an eval's n-grams that a document must hold; 0: a single one is enough. Marin: 0.5",
    )
    min_words: int = Field(default=5, ge=1, description="fewest words of an eval text that is searched")
    min_plain_words: int = Field(
        default=3, ge=0, description="fewest words of two or more letters in an n-gram: rows of numbers are everywhere"
    )
    max_common: int | None = Field(
        default=None,
        ge=1,
        description="an n-gram found in more documents than this is boilerplate, not a leak (null: no such rule)",
    )

    @property
    def across(self) -> bool:
        """A limit on how common an n-gram is needs a first pass that counts, too."""
        return super().across or self.max_common is not None

    @cached_property
    def index(self) -> OverlapIndex:
        """The evals; built once in each process."""
        found = eval_texts(self.against, self.texts)
        return build_index(found, self.ngram_words, self.min_words, self.min_plain_words)

    def hits(self, texts: Texts) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The n-grams of evals in these texts."""
        found = hits_of(self.index, texts)
        return found.documents, found.ids

    def match(self, texts: Texts, counts: NgramCounts | None = None) -> dict[str, pyarrow.Array]:
        """The columns of these texts."""
        by_rarity = self.weights == "corpus"
        weights = ngram_weights(self.index, counts, by_rarity=by_rarity, max_common=self.max_common)
        return match_texts(self.index, weights, texts)

    def guilty(self, matches: pyarrow.StructArray) -> NDArray[np.int64]:
        """Matches with enough of an eval."""
        return np.flatnonzero(matches.field("score").to_numpy(zero_copy_only=False) >= self.min_share)

    def decide(self, columns: pyarrow.Table) -> list[Rule]:
        hits = columns.column("contamination_hits").fill_null(0).to_numpy()
        shares = columns.column("contamination").to_numpy()
        broken = (hits > 0) & (shares >= self.min_share)
        rows = np.flatnonzero(broken)
        names = ("contamination_text", "contamination_set", "contamination_eval")
        found = (columns.column(name).take(rows).to_pylist() for name in names)
        reasons = {}
        for row, text, name, number in zip(rows.tolist(), *found, strict=True):
            more = f" and {hits[row] - 1} more n-grams" if hits[row] > 1 else ""
            share = f" ({shares[row]:.0%} of it)" if self.min_share else ""
            reasons[row] = f"“{' '.join(text.split())}”{more} of {name}:{number}{share}"
        return [rule(columns, broken, reasons)]
