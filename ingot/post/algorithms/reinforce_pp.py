"""REINFORCE++ (arXiv 2501.03262): the return of every token, normalised over all tokens of the batch; no group, no critic.

    reward_t = −0.01 (log π_old − log ref),  plus the answer's reward at its last token
    G_t = reward_t + γ G_{t+1},     A_t = (G_t − mean) / sqrt(var + 1e-8)  over the batch's sampled tokens, variance with n − 1

0.01 is the default of the authors' code (OpenRLHF, `init_kl_coef`). With `baseline: true` the mean reward of the task's answers
is subtracted first (REINFORCE++-baseline). Returns pass over tool results: what comes after one counts for what was written
before it. The mean is over tokens, so long answers weigh more in it.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ingot.post.algorithm import Samples, Stamped
from ingot.post.rewards.returns import discounted, token_rewards, whiten
from ingot.post.rl.objective import (
    Clipped,
    centred,
    spread_metrics,
    token_divergences,
    token_mean,
)


class ReinforcePp(Clipped):
    """Globally normalised returns."""

    baseline: bool = Field(False, description="subtract the mean reward of the task's answers first")
    discount: float = Field(1.0, gt=0, le=1, description="γ, from one sampled token to the next")
    reference_weight: float = Field(0.01, ge=0, description="coefficient of the divergence from the reference")
    reference_in: Literal["loss", "reward"] = Field("reward", description="where the divergence stands")

    @property
    def least_group(self) -> int:
        return 2 if self.baseline else 1

    def group_advantages(self, rewards: list[float]) -> list[float]:
        return centred(rewards) if self.baseline else rewards

    def advantages(self, samples: Samples) -> Stamped:
        rewards = self.rewards(samples)
        metrics = spread_metrics(rewards, samples.group)
        divergences = None
        if self.wants_reference and self.reference_in == "reward":
            divergences = token_divergences(samples)
            metrics["reference_divergence"] = token_mean(divergences, samples)
        earned = self.answer_advantages(rewards, samples.group)
        masks = [each.sampled() if self.learns_from(each) else [0] * each.length for each in samples.episodes]
        by_token = token_rewards(earned, masks, divergences, self.reference_weight)
        returns = [discounted(*row, self.discount) for row in zip(by_token, masks, strict=True)]
        return whiten(returns, masks), metrics
