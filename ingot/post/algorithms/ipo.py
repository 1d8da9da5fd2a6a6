"""IPO: identity preference optimisation (Azar et al. 2023, arXiv 2310.12036).

    ( D_w/|y_w| − D_l/|y_l| − 1/(2β) )²,   D = Σ_t log π(y_t) − log ref(y_t)

DPO drives the margin of a pair that is always preferred to infinity; here it has a target. Equation 17 of the paper has sums;
its results were made with means over the answer's tokens, as its authors told TRL, so that is the default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from ingot.post.algorithm import PairAlgorithm

if TYPE_CHECKING:
    from ingot.model.transformer import Transformer
    from ingot.train.losses.terms import LossTerm


class Ipo(PairAlgorithm):
    """Identity preference optimisation: a margin of 1/(2β)."""

    beta: float = Field(0.1, gt=0, description="τ of the paper: the margin of a pair shall be 1/(2β)")
    length_normalised: bool = Field(True, description="divide each answer's log-ratio by its length")

    def terms(self, model: Transformer, config: Any) -> list[LossTerm]:
        from ingot.train.losses.preference import IdentityPreference

        return [IdentityPreference(self.beta, self.length_normalised)]
