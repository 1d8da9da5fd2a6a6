"""Length-normalised DPO with an anchor (arXiv 2305.18290; Tülu 3, arXiv 2411.15124).

    −log σ( β (D_w/|y_w| − D_l/|y_l|) ),   D = Σ_t log π(y_t) − log ref(y_t)

plus, with a small weight, cross-entropy on the chosen answer: DPO alone may lower both likelihoods as long as the gap
grows (Llama 3, arXiv 2407.21783, section 4.1.4). The reference is the input checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from ingot.post.algorithm import PairAlgorithm

if TYPE_CHECKING:
    from ingot.model.transformer import Transformer
    from ingot.train.terms import LossTerm


class Dpo(PairAlgorithm):
    """Direct preference optimisation, length-normalised, with an anchor."""

    beta: float = Field(5.0, gt=0, description="β: how strongly the policy is held to the reference")
    length_normalised: bool = Field(True, description="divide each answer's log-ratio by its length")
    anchor: float = Field(
        0.2,
        ge=0,
        description="weight of cross-entropy on the chosen answers, which keeps them likely (Llama 3 uses 0.2)",
    )

    def terms(self, model: Transformer, config: Any) -> list[LossTerm]:
        from ingot.train.terms import CrossEntropy, Preference

        return [Preference(self.beta, self.length_normalised), CrossEntropy(coefficient=self.anchor)]
