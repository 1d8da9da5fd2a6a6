"""SimPO: simple preference optimisation, without a reference (Meng et al. 2024, arXiv 2405.14734).

    −log σ( β (ℓ_w − ℓ_l) − γ ),   ℓ = mean log-probability of the answer's tokens

What is compared is what sampling ranks answers by, and nothing holds the policy to where it began but a small learning rate:
the authors search 3e-7 to 1e-6. Published: β 2 to 2.5, γ/β 0.1 to 0.8; they begin with γ/β = 0.5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from ingot.post.algorithm import PairAlgorithm

if TYPE_CHECKING:
    from ingot.model.transformer import Transformer
    from ingot.train.losses.terms import LossTerm


class Simpo(PairAlgorithm):
    """Mean log-probabilities with a target margin; no reference."""

    wants_reference: ClassVar[bool] = False

    beta: float = Field(2.0, gt=0, description="β: scale of the mean log-probabilities")
    target_margin: float = Field(1.0, ge=0, description="γ: margin from which on a pair's loss falls below log 2")

    def terms(self, model: Transformer, config: Any) -> list[LossTerm]:
        from ingot.train.losses.preference import SimplePreference

        return [SimplePreference(self.beta, target_margin=self.target_margin)]
