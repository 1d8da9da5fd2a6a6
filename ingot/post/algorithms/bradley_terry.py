"""Reward models from pairs: −log σ(r_w − r_l − m), optionally centred (train/losses/reward.py)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from ingot.post.algorithm import RewardAlgorithm

if TYPE_CHECKING:
    from ingot.model.transformer import Transformer
    from ingot.train.losses.terms import LossTerm


class BradleyTerry(RewardAlgorithm):
    """The better answer of a pair earns more; a pair's `margin` says by how much at least."""

    centring: float = Field(
        0.0, ge=0, description="coefficient of (r_w + r_l)², which keeps rewards around 0 (usual: 0.01)"
    )

    def terms(self, model: Transformer, config: Any) -> list[LossTerm]:
        from ingot.train.losses.reward import BradleyTerry as Term

        return [Term(centring=self.centring)]
