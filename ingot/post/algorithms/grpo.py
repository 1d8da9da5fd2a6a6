"""GRPO (arXiv 2402.03300), as later work runs it.

For each task G answers are sampled and scored by its verifier; the advantage of answer i is

    A_i = R_i − mean(R)          (optionally / (std(R) + 1e-4), std with n − 1)

the same for all of its tokens. The loss is the clipped policy gradient, summed over the step's sampled tokens and divided by
their number (DAPO, arXiv 2503.14476), plus an optional divergence from the input checkpoint. Not dividing by the standard
deviation keeps easy and hard tasks in proportion (Dr. GRPO, arXiv 2503.20783).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field

from ingot.envs.episode import Episode
from ingot.post.algorithm import RlAlgorithm, Samples, Stamped

if TYPE_CHECKING:
    from ingot.model.transformer import Transformer
    from ingot.train.terms import LossTerm

STD_EPSILON = 1e-4


class Grpo(RlAlgorithm):
    """GRPO with verifiable rewards: token-level mean, no division by the standard deviation."""

    clip_low: float = Field(0.2, gt=0, le=1, description="ratios below 1 − this are clipped")
    clip_high: float = Field(
        0.28, gt=0, description="ratios above 1 + this are clipped (clip-higher, arXiv 2503.14476)"
    )
    divide_by_std: bool = Field(
        False, description="divide the advantage by the group's standard deviation, as GRPO did"
    )
    reference_weight: float = Field(0.0, ge=0, description="coefficient of the divergence from the input checkpoint")
    format_reward: float = Field(0.0, ge=0, lt=1, description="reward for a well-formed but wrong answer")

    @property
    def wants_reference(self) -> bool:
        return self.reference_weight > 0

    def reward(self, episode: Episode) -> float:
        """The verifier's reward, or a smaller one for an answer that is only well formed."""
        return max(episode.score.reward, self.format_reward * episode.score.format_ok)

    def advantages(self, samples: Samples) -> Stamped:
        rewards = [None if episode.failed else self.reward(episode) for episode in samples.episodes]
        stamped = group_advantages(rewards, samples.group, self.divide_by_std)
        spread = [statistics.pstdev(known) for known in _known(rewards, samples.group) if known]
        metrics = {
            "reward_std": sum(spread) / len(spread),
            "mixed_groups": sum(value > 0 for value in spread) / len(spread),
        }
        return [[value] * each.length for value, each in zip(stamped, samples.episodes, strict=True)], metrics

    def terms(self, model: Transformer, config: Any) -> list[LossTerm]:
        from ingot.train.terms import PolicyGradient, ReferenceDivergence

        return [PolicyGradient(self.clip_low, self.clip_high), ReferenceDivergence(self.reference_weight)]


def group_advantages(rewards: Sequence[float | None], group: int, divide_by_std: bool) -> list[float]:
    """The advantage of every reward within its group; `rewards` lists the groups one after another.

    None stands for an episode whose environment failed: it is no part of its group, and has no advantage.
    """
    advantages = []
    for start, known in zip(range(0, len(rewards), group), _known(rewards, group), strict=True):
        # exactly 0 where all are equal: what rounding leaves of 0.1 − 0.1 is as good as a real advantage to Muon
        mean = statistics.mean(known) if known else 0.0
        scale = statistics.stdev(known) + STD_EPSILON if divide_by_std and len(known) > 1 else 1.0
        members = rewards[start : start + group]
        advantages += [0.0 if reward is None else (reward - mean) / scale for reward in members]
    return advantages


def _known(rewards: Sequence[float | None], group: int) -> list[list[float]]:
    """The rewards that are known, group by group."""
    starts = range(0, len(rewards), group)
    return [[reward for reward in rewards[start : start + group] if reward is not None] for start in starts]
