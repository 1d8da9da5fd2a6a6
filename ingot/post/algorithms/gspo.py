"""GSPO (arXiv 2507.18071): the ratio is of a whole answer, as its reward is.

    s_i = exp( mean_t log π(y_t)/π_old(y_t) ),     loss = −mean_i min( s_i A_i, clip(s_i, 1 − 3e-4, 1 + 4e-4) A_i )

with GRPO's advantage divided by the standard deviation. The bounds are so small because the ratio is a geometric mean: it hardly
moves while single tokens' ratios do. With one update on a batch it is 1: the stage makes four, as the paper, unless it says
otherwise.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from ingot.post.algorithms.grpo import Grpo


class Gspo(Grpo):
    """GRPO with the ratio of a sequence."""

    mini_batches: ClassVar[int] = 4

    clip_low: float = Field(3e-4, gt=0, description="ratios below 1 − this are clipped")
    clip_high: float = Field(4e-4, gt=0, description="ratios above 1 + this are clipped")
    divide_by_std: bool = Field(True, description="divide the advantage by the standard deviation")
    ratio: Literal["token", "product", "mean"] = Field(
        "mean", description="of a token, or of its sequence: the product of its tokens' ratios, or their geometric mean"
    )
    aggregation: Literal["token", "sequence", "group", "constant"] = Field(
        "sequence", description="the mean is over tokens, answers, tasks, or answers times a constant length"
    )
