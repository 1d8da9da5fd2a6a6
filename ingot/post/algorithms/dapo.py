"""DAPO (arXiv 2503.14476): GRPO with clip-higher, a mean over tokens, dynamic sampling and a soft penalty of overlong answers.

    A_i = (R_i − mean(R)) / (std(R) + 1e-4),     loss = −Σ_t min( r A, clip(r, 1 − 0.2, 1 + 0.28) A ) / tokens

R_i has the penalty in it: 0 up to L − B tokens, then down to −1/2 at L = max_new_tokens. In the paper L is 20,480, B a fifth,
and the penalty −1 beside rewards of 1 and −1: half of what a right answer earns more, as here, where rewards are 1 and 0.
Groups of equal rewards are replaced by others: `dynamic_sampling` of the stage is on. Its clip needs several updates on a batch:
the stage makes four, unless it says otherwise (the paper 16).
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from ingot.post.algorithms.grpo import Grpo
from ingot.post.rewards.reward_shaping import OverlongConfig


class Dapo(Grpo):
    """Decoupled clip and dynamic sampling."""

    dynamic: ClassVar[bool] = True
    mini_batches: ClassVar[int] = 4

    divide_by_std: bool = Field(True, description="divide the advantage by the standard deviation")
    overlong: OverlongConfig | None = Field(
        OverlongConfig(), description="soft penalty before the limit of length; null for none"
    )
