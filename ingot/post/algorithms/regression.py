"""Reward models from scores, such as those of a rubric: the mean of (r − score)² (train/losses/reward.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from ingot.post.algorithm import RewardAlgorithm

if TYPE_CHECKING:
    from ingot.model.transformer import Transformer
    from ingot.train.losses.terms import LossTerm


class Regression(RewardAlgorithm):
    """The reward of an answer is the score that it was given."""

    paired: ClassVar[bool] = False

    def terms(self, model: Transformer, config: Any) -> list[LossTerm]:
        from ingot.train.losses.reward import Regression as Term

        return [Term()]
