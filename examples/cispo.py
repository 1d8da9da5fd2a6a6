"""An RL algorithm: CISPO (MiniMax-M1, arXiv 2506.13585) with GRPO's bounds.

−Σ_t clip(r_t, 1 − low, 1 + high).detach() · A_t · log π_t / (sampled tokens): no token loses its gradient by the clip.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ingot.post.algorithms.grpo import Grpo
from ingot.train.losses.surrogates import Surrogate


@dataclass(frozen=True)
class ClippedWeights(Surrogate):
    """What the loss makes of ratio and advantage."""

    low: float
    high: float

    def __call__(self, ratio: Tensor, advantage: Tensor, logprobs: Tensor) -> tuple[Tensor, Tensor]:
        weight = ratio.detach().clamp(1 - self.low, 1 + self.high)
        return weight * advantage * logprobs, weight != ratio


class Cispo(Grpo):
    """CISPO: the importance weight is clipped, the gradient is not."""

    def surrogate(self) -> Surrogate:
        return ClippedWeights(self.clip_low, self.clip_high)
