"""Length-normalised DPO with an anchor (arXiv 2305.18290; Tülu 3, arXiv 2411.15124).

    −log σ( β (D_w/|y_w| − D_l/|y_l|) ),   D = Σ_t log π(y_t) − log ref(y_t)

plus, with a small weight, cross-entropy on the chosen answer: DPO alone may lower both likelihoods as long as the gap
grows (Llama 3, arXiv 2407.21783, section 4.1.4). The reference is the input checkpoint. The DPO of the first paper is
`{beta: 0.1, length_normalised: false, anchor: 0}`. Labels that may be wrong: conservative (E. Mitchell, "A note on DPO with noisy
preferences", 2023) or robust DPO (arXiv 2403.00409).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, model_validator

from ingot.post.algorithm import PairAlgorithm

if TYPE_CHECKING:
    from ingot.model.transformer import Transformer
    from ingot.train.losses.terms import LossTerm


class Dpo(PairAlgorithm):
    """Direct preference optimisation, length-normalised, with an anchor."""

    beta: float = Field(5.0, gt=0, description="β: how strongly the policy is held to the reference")
    length_normalised: bool = Field(True, description="divide each answer's log-ratio by its length")
    anchor: float = Field(
        0.2,
        ge=0,
        description="weight of cross-entropy on the chosen answers, which keeps them likely (Llama 3 uses 0.2)",
    )
    label_smoothing: float = Field(0.0, ge=0, lt=0.5, description="chance that the two answers of a pair are swapped")
    robust: bool = Field(
        False, description="take the swaps out of the loss (robust DPO) instead of expecting them (conservative DPO)"
    )

    @model_validator(mode="after")
    def _robust_to_something(self) -> Self:
        if self.robust and not self.label_smoothing:
            raise ValueError("robust: it changes nothing without swapped labels; give label_smoothing")
        return self

    def terms(self, model: Transformer, config: Any) -> list[LossTerm]:
        from ingot.train.losses.preference import Preference
        from ingot.train.losses.terms import CrossEntropy

        preference = Preference(
            self.beta, self.length_normalised, label_smoothing=self.label_smoothing, robust=self.robust
        )
        return [preference, CrossEntropy(coefficient=self.anchor)]
