"""APO-down: anchored preference optimisation for chosen answers that are worse than the model's own (arXiv 2408.06266).

    σ(β D_w) + 1 − σ(β (D_w − D_l)),   D = Σ_t log π(y_t) − log ref(y_t)

Both answers get less likely than under the reference, the rejected one more so: a strong model learns a direction from pairs
whose better half it should not imitate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from ingot.post.algorithm import PairAlgorithm

if TYPE_CHECKING:
    from ingot.model.transformer import Transformer
    from ingot.train.losses.terms import LossTerm


class ApoDown(PairAlgorithm):
    """Both answers down, rejected ones more."""

    beta: float = Field(0.1, gt=0, description="β: how strongly the policy is held to the reference")

    def terms(self, model: Transformer, config: Any) -> list[LossTerm]:
        from ingot.train.losses.preference import AnchoredDown

        return [AnchoredDown(self.beta)]
