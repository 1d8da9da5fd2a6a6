"""An algorithm of my own: CISPO (MiniMax-M1, arXiv 2506.13585) on GRPO's advantages.

−Σ_t clip(r_t, 1 − low, 1 + high).detach() · A_t · log p_t / (sampled tokens): no token loses its gradient by the clip.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ingot.post.algorithms.grpo import Grpo
from ingot.train.terms import LossTerm, PolicyGradient, Scored


class ClippedWeights(PolicyGradient):
    """The loss; what PolicyGradient logs, it logs too."""

    def numerator(self, scored: Scored) -> tuple[Tensor, dict[str, Tensor]]:
        _, logged = super().numerator(scored)
        mask, old = scored.streams["response_mask"], scored.streams["sampled_logprob"]
        ratio = ((scored.logprobs.detach() - old) * mask).exp().clamp(1 - self.clip_low, 1 + self.clip_high)
        return -(ratio * scored.streams["advantage"] * scored.logprobs * mask).sum(), logged


class Cispo(Grpo):
    """CISPO: the importance weight is clipped, the gradient is not."""

    def terms(self, model: Any, config: Any) -> list[LossTerm]:
        return [ClippedWeights(self.clip_low, self.clip_high)]
