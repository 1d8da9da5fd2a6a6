"""GRPO with the settings of its paper, DeepSeekMath (arXiv 2402.03300); `grpo` has those of later work.

    A_i = (R_i − mean(R)) / (std(R) + 1e-4),     loss = −mean_i mean_t min( r A, clip(r, 1 ± 0.2) A ) + 0.04 KL,     KL by k3

Its group has 64 answers.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ingot.post.algorithms.grpo import Grpo


class GrpoPaper(Grpo):
    """GRPO as published: a deviation, a mean over answers, a divergence."""

    clip_high: float = Field(0.2, gt=0, description="ratios above 1 + this are clipped")
    divide_by_std: bool = Field(True, description="divide the advantage by the standard deviation")
    aggregation: Literal["token", "sequence", "group", "constant"] = Field(
        "sequence", description="the mean is over tokens, answers, tasks, or answers times a constant length"
    )
    reference_weight: float = Field(0.04, ge=0, description="coefficient of the divergence from the reference")
    reference_estimator: Literal["k1", "k2", "k3", "k3_unbiased"] = Field(
        "k3", description="its estimate in the loss; in the reward it is k1"
    )
