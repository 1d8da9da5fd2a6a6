"""The objective of Kimi k1.5 (arXiv 2501.12599) and K2 (arXiv 2507.20534): a squared error in place of the clip.

    loss = mean over answers of ( R − mean(R) − τ log(π(y)/π_old(y)) )² / 2τ

π(y) is the probability of the whole answer. The gradient is −(A − τ log ratio) ∇ log π(y): REINFORCE with the group's mean as
baseline at the first update on a batch, held back in proportion to how far the policy has moved at the later ones.
The report does not divide by 2τ; that only sets the scale of the learning rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from ingot.post.rl.objective import GroupRelative
from ingot.train.losses.surrogates import Surrogate


@dataclass(frozen=True)
class SquaredError(Surrogate):
    """−(A − τ log r)² / 2τ."""

    tau: float

    def __call__(self, ratio: Tensor, advantage: Tensor, logprobs: Tensor) -> tuple[Tensor, Tensor]:
        error = advantage - self.tau * ratio.log()
        return -error.square() / (2 * self.tau), torch.zeros_like(ratio, dtype=torch.bool)


class KimiK2(GroupRelative):
    """Squared error of the log ratio against the advantage."""

    tau: float = Field(0.1, gt=0, description="τ: how firmly the policy is held to where the batch's updates began")
    ratio: Literal["token", "product", "mean"] = Field("product", description="of a token, or of its sequence")
    aggregation: Literal["token", "sequence", "group", "constant"] = Field(
        "sequence", description="what the mean is over"
    )

    def surrogate(self) -> Surrogate:
        return SquaredError(self.tau)
