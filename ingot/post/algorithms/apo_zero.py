"""APO-zero: anchored preference optimisation for chosen answers that are better than the model's own (arXiv 2408.06266).

    1 − σ(β D_w) + σ(β D_l),   D = Σ_t log π(y_t) − log ref(y_t)

DPO only widens the gap; here the chosen answer itself gets likelier than under the reference, and the rejected one less likely.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from ingot.post.algorithm import PairAlgorithm

if TYPE_CHECKING:
    from ingot.model.transformer import Transformer
    from ingot.train.losses.terms import LossTerm


class ApoZero(PairAlgorithm):
    """Chosen answers up, rejected ones down."""

    beta: float = Field(0.1, gt=0, description="β: how strongly the policy is held to the reference")

    def terms(self, model: Transformer, config: Any) -> list[LossTerm]:
        from ingot.train.losses.preference import AnchoredZero

        return [AnchoredZero(self.beta)]
