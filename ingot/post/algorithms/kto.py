"""KTO: Kahneman-Tversky optimisation on single answers marked good or bad (Ethayarajh et al. 2024, arXiv 2402.01306).

    good  λ_D (1 − σ(β (D − z)))        bad  λ_U (1 − σ(β (z − D)))
    D = Σ_t log π(y_t) − log ref(y_t),   z = max(0, mean of D over answers to other prompts)

z estimates KL(π ‖ ref) from all rows of the step; no gradient passes through it. If one kind of row is rarer, the paper weighs it
so that λ_D n_D / (λ_U n_U) is between 1 and 4/3. Published: β 0.1, λ_D = λ_U = 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from ingot.post.algorithm import PairAlgorithm

if TYPE_CHECKING:
    from ingot.model.transformer import Transformer
    from ingot.train.losses.terms import LossTerm


class Kto(PairAlgorithm):
    """Single answers, good or bad, against a moving reference point."""

    paired: ClassVar[bool] = False

    beta: float = Field(0.1, gt=0, description="β: how strongly the policy is held to the reference")
    desirable_weight: float = Field(1.0, ge=0, description="λ_D: weight of the good answers")
    undesirable_weight: float = Field(1.0, ge=0, description="λ_U: weight of the bad answers")

    def terms(self, model: Transformer, config: Any) -> list[LossTerm]:
        from ingot.train.losses.preference import KahnemanTversky

        return [KahnemanTversky(self.beta, self.desirable_weight, self.undesirable_weight)]
