"""The step `decon` removes documents that hold an eval, found approximately, as Ai2's decon does (Olmo 3).

It finds the question, weighs its n-grams by how rare they are among the evals, looks for the answer behind it and the
passage before it, and asks more of short evals. Read index.py, search.py and score.py in this order. Defaults are decon's,
but for `tokens` (a cl100k rank file there); recipes/data/olmo3-web.yaml has the settings of the Olmo 3 web run.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import pyarrow
from numpy.typing import NDArray

from ingot.data.contamination.counting import NgramCounts
from ingot.data.contamination.ngrams import scan
from ingot.data.step import Rule
from ingot.data.steps.decon.index import DeconIndex, build_index
from ingot.data.steps.decon.options import DeconOptions
from ingot.data.steps.decon.score import guilty_matches, judge, match_texts
from ingot.data.steps.decon.tokens import tokens_of
from ingot.data.text.texts import Texts


class DeconStep(DeconOptions):
    """Remove documents that hold an eval, by Ai2's algorithm: the question, then its answer and its passage.

    `against` guesses question, answer and passage from the names of the fields, or is told (`{files, question, …}`).
    """

    rate = 74

    @cached_property
    def index(self) -> DeconIndex:
        """The evals; built once in each process."""
        return build_index(self)

    def hits(self, texts: Texts) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The n-grams of questions in these texts."""
        tokens = tokens_of(texts, self.tokens)
        found = scan(tokens.values, tokens.offsets, self.index.ngrams)
        return found.documents, found.ids

    def match(self, texts: Texts, counts: NgramCounts | None = None) -> dict[str, pyarrow.Array]:
        """The columns of these texts."""
        return match_texts(self.index if counts is None else self.index.weighted(counts), self, texts)

    def guilty(self, matches: pyarrow.StructArray) -> NDArray[np.int64]:
        """Matches that reach the threshold for their length."""
        return guilty_matches(self, matches)[0]

    def decide(self, columns: pyarrow.Table) -> list[Rule]:
        return [judge(self, columns)]
