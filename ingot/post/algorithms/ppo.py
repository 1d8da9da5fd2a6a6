"""PPO (arXiv 1707.06347) with a critic and generalised advantages (arXiv 1506.02438).

    reward_t = −β (log π_old − log ref),  plus the answer's reward at its last token
    δ_t = reward_t + γ V_{t+1} − V_t,     A_t = δ_t + γ λ A_{t+1},     G_t = A_t + V_t     (γ = λ = 1)
    loss = −Σ_t min( r A, clip(r, 1 ± 0.2) A ) / tokens  +  value_weight · critic's loss (train/losses/value_loss.py)

A is normalised over the batch's sampled tokens after G is taken. The critic is one linear row on the policy's last hidden state
(head `value`): it costs no second model, and its gradient reaches the layers below it. verl lets a value move by 0.5, SkyRL and
slime by 0.2. Of a tool's result nothing is learnt, and A passes over it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from ingot.post.algorithm import Samples, Stamped
from ingot.post.rewards.returns import generalised_advantages, token_rewards, whiten
from ingot.post.rl.objective import Clipped, spread_metrics, token_divergences, token_mean

if TYPE_CHECKING:
    from ingot.model.transformer import Transformer
    from ingot.train.losses.terms import LossTerm


class Ppo(Clipped):
    """A critic instead of a group."""

    of_ratio: ClassVar[tuple[str, ...]] = (*Clipped.of_ratio, "value_clip")  # in the first update V is V_old, too

    discount: float = Field(1.0, gt=0, le=1, description="γ, from one sampled token to the next")
    smoothing: float = Field(1.0, ge=0, le=1, description="λ of generalised advantages")
    whiten: bool = Field(True, description="normalise advantages over the batch's sampled tokens")
    value_weight: float = Field(0.5, gt=0, description="coefficient of the critic's loss")
    value_clip: float | None = Field(
        0.2, gt=0, description="how far a value may move from its old one in a batch; null: freely"
    )
    reference_in: Literal["loss", "reward"] = Field("reward", description="where the divergence stands")

    @property
    def heads(self) -> tuple[str, ...]:
        return ("value",)

    @property
    def least_group(self) -> int:
        return 1

    def group_advantages(self, rewards: list[float]) -> list[float]:
        return rewards

    def advantages(self, samples: Samples) -> Stamped:
        streams, metrics = self.streams(samples)
        return streams["advantage"], metrics

    def streams(self, samples: Samples) -> tuple[dict[str, list[list[float]]], dict[str, float]]:
        rewards = self.rewards(samples)
        metrics = spread_metrics(rewards, samples.group)
        divergences = None
        if self.wants_reference and self.reference_in == "reward":
            divergences = token_divergences(samples)
            metrics["reference_divergence"] = token_mean(divergences, samples)
        masks = [each.sampled() if self.learns_from(each) else [0] * each.length for each in samples.episodes]
        earned = self.answer_advantages(rewards, samples.group)
        by_token = token_rewards(earned, masks, divergences, self.reference_weight)
        values = samples.values()
        made = [
            generalised_advantages(*row, self.discount, self.smoothing)
            for row in zip(by_token, values, masks, strict=True)
        ]
        rows, returns = [one for one, _ in made], [one for _, one in made]
        advantages = whiten(rows, masks) if self.whiten else rows
        return {"advantage": advantages, "return": returns, "old_value": values}, metrics

    def terms(self, model: Transformer, config: Any) -> list[LossTerm]:
        from ingot.train.losses.value_loss import ValueLoss

        return [*super().terms(model, config), ValueLoss(self.value_weight, self.value_clip, self.mean(config))]
