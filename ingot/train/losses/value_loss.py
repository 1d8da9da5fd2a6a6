"""The loss of a critic: a head on the policy's hidden states that estimates what an answer will still earn.

    loss = ½ Σ_t a_t max( (V_t − G_t)², (clip(V_t, V_old ± c) − G_t)² ) / N          (PPO, arXiv 1707.06347)

V is read where its token is predicted, so it knows what was written before it. Streams: `return` (G) and `old_value` (V_old), and
those of the aggregation, which is that of the policy gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ingot.model.transformer import VALUE_HEAD
from ingot.train.losses.policy_gradient import TOKEN_MEAN, Aggregation
from ingot.train.losses.terms import LossTerm, Scored


@dataclass(frozen=True)
class ValueLoss(LossTerm):
    """The squared error of the critic; a step away from its old estimate of more than `clip` is not rewarded."""

    coefficient: float = 0.5
    clip: float | None = 0.2
    aggregation: Aggregation = TOKEN_MEAN
    name: str = "value_loss"
    heads: tuple[str, ...] = (VALUE_HEAD,)
    needs: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "needs", (*self.aggregation.needs(), "return", "old_value"))

    def denominator(self, streams: Mapping[str, Tensor]) -> Tensor:
        return self.aggregation.total(streams)

    def numerator(self, scored: Scored) -> tuple[Tensor, dict[str, Tensor]]:
        value, target, old = scored.heads[VALUE_HEAD], scored.streams["return"], scored.streams["old_value"]
        error = (value - target).square()
        if self.clip is not None:
            near = old + (value - old).clamp(-self.clip, self.clip)
            error = torch.maximum(error, (near - target).square())
        logged = {"value_mean": (value.detach() * self.aggregation.shares(scored.streams, value.dtype)).sum()}
        return (error * self.aggregation.weights(scored.streams, value.dtype)).sum() / 2, logged
