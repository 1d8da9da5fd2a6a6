"""ORPO: odds ratio preference optimisation, SFT and preferences in one stage (Hong et al. 2024, arXiv 2403.07691).

    cross-entropy on y_w  −  β log σ( log odds(y_w) − log odds(y_l) ),   odds = p / (1 − p),   log p = mean log-probability

There is no reference: the stage may begin from a base model. The cross-entropy is on the answer's tokens, as the paper's
P(y | x); its code and TRL count the prompt's tokens too. The paper's learning rate is 8e-6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field

from ingot.post.algorithm import PairAlgorithm

if TYPE_CHECKING:
    from ingot.model.transformer import Transformer
    from ingot.train.losses.terms import LossTerm


class Orpo(PairAlgorithm):
    """Cross-entropy on the chosen answer and the odds ratio of both; no reference."""

    wants_reference: ClassVar[bool] = False

    beta: float = Field(0.1, gt=0, description="λ of the paper: weight of the odds ratio beside the cross-entropy")

    def terms(self, model: Transformer, config: Any) -> list[LossTerm]:
        from ingot.train.losses.preference import OddsRatio
        from ingot.train.losses.terms import CrossEntropy

        return [CrossEntropy(), OddsRatio(self.beta)]
