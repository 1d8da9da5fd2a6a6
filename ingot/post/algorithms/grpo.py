"""GRPO (DeepSeekMath, arXiv 2402.03300), as later work runs it.

For each task G answers are sampled and scored by its verifier; the advantage of answer i is

    A_i = R_i − mean(R)          with divide_by_std: / (std(R) + 1e-4), std with n − 1

the same for all of its tokens. By default the loss is a mean over tokens with clip-higher (DAPO, arXiv 2503.14476), without
division by the standard deviation (Dr. GRPO, arXiv 2503.20783) and without a reference. DeepSeekMath's own settings are

    {algorithm: grpo, divide_by_std: true, aggregation: sequence, clip_high: 0.2, reference_weight: 0.04, reference_estimator: k3}
"""

from __future__ import annotations

from pydantic import Field

from ingot.post.rl.objective import Clipped, GroupRelative


class Grpo(Clipped, GroupRelative):
    """Advantages within a group; token-level mean, no division by the standard deviation."""

    clip_high: float = Field(
        0.28, gt=0, description="ratios above 1 + this are clipped (clip-higher, arXiv 2503.14476)"
    )
