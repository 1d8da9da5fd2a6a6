"""RLOO, REINFORCE leave-one-out (arXiv 2402.14740): the baseline of an answer is the mean reward of the other answers.

    R_i = reward − 0.05 Σ_t (log π_old − log ref),     A_i = R_i − mean_{j≠i} R_j
    loss = −mean_i min( r_i A_i, clip(r_i, 1 ± 0.2) A_i )

The ratio r_i is of the whole answer, the product of its tokens' (as in TRL; verl takes the ratio of each token: `ratio: token`).
An answer that is left alone, because the environments of the others failed, keeps its reward as advantage.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ingot.post.rl.objective import Clipped


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

    def group_advantages(self, rewards: list[float]) -> list[float]:
        others = len(rewards) - 1
        if min(rewards) == max(rewards) and others:
            return [0.0] * len(rewards)  # exactly 0, whatever rounding would leave
        total = sum(rewards)
        return [one - (total - one) / others for one in rewards] if others else rewards
