"""RLOO, REINFORCE leave-one-out (arXiv 2402.14740): the baseline of an answer is the mean reward of the other answers.

    R_i = reward − 0.05 Σ_t (log π_old − log ref),     A_i = R_i − mean_{j≠i} R_j
    loss = −mean_i min( r_i A_i, clip(r_i, 1 ± 0.2) A_i )

The ratio r_i is of the whole answer, the product of its tokens' (as in TRL; verl takes the ratio of each token: `ratio: token`).
An answer that is left alone, because the environments of the others failed, keeps its reward as advantage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from ingot.post.rollouts.policy_optimization import Clipped, groups_of


class Rloo(Clipped):
    """The leave-one-out baseline, on whole answers."""

    ratio: Literal["token", "product", "mean"] = Field(
        "product",
        description="of a token, or of its sequence: the product of its tokens' ratios, or their geometric mean",
    )
    aggregation: Literal["token", "sequence", "group", "constant"] = Field(
        "sequence", description="the mean is over tokens, answers, tasks, or answers times a constant length"
    )
    reference_weight: float = Field(0.05, ge=0, description="coefficient of the divergence from the reference")
    reference_in: Literal["loss", "reward"] = Field("reward", description="where the divergence stands")

    @property
    def least_group(self) -> int:
        return 2

    def answer_advantages(self, rewards: Sequence[float | None], group: int) -> list[float]:
        return leave_one_out(rewards, group)


def leave_one_out(rewards: Sequence[float | None], group: int) -> list[float]:
    """Each reward minus the mean of the others of its group; None, a failed episode, is no part of it."""
    advantages = []
    for start, known in zip(range(0, len(rewards), group), groups_of(rewards, group), strict=True):
        for reward in rewards[start : start + group]:
            others = len(known) - 1
            equal = reward is not None and min(known) == max(known) and others > 0
            if reward is None or equal:  # exactly 0, whatever rounding would leave
                advantages.append(0.0)
            else:
                advantages.append(reward - (sum(known) - reward) / others if others else reward)
    return advantages
