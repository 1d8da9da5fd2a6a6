"""Dr. GRPO, "GRPO done right" (arXiv 2503.20783): no length and no standard deviation in the loss.

    A_i = R_i − mean(R),        loss = −Σ_t min( r A, clip(r, 1 ± 0.2) A ) / (answers · L)

with a constant L, the longest answer. Dividing by an answer's own length makes long wrong answers cheap, and dividing by the
group's standard deviation makes tasks count more that are almost always, or almost never, solved.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ingot.post.algorithms.grpo import Grpo


class DrGrpo(Grpo):
    """GRPO divided by a constant."""

    clip_high: float = Field(0.2, gt=0, description="ratios above 1 + this are clipped")
    aggregation: Literal["token", "sequence", "group", "constant"] = Field(
        "constant", description="the mean is over tokens, answers, tasks, or answers times a constant length"
    )
