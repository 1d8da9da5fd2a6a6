"""CISPO (MiniMax-M1, arXiv 2506.13585): the importance weight is clipped, no token loses its gradient.

    loss = −Σ_t sg[ clip(r_t, low, high) ] A_t log π_t / tokens

with GRPO's advantage divided by the standard deviation. Frameworks write the bounds in three ways: here and in TRL the upper one
is the largest weight itself (open-instruct and verl: 1 + ε), and there is no lower one (verl, NeMo and slime keep 1 − ε).
With one update on a batch every weight is 1: the stage makes four, unless it says otherwise (the paper 16).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from pydantic import Field, model_validator

from ingot.post.rl.objective import GroupRelative

if TYPE_CHECKING:
    from ingot.train.losses.surrogates import Surrogate


class Cispo(GroupRelative):
    """Clipped importance weights on the plain policy gradient."""

    mini_batches: ClassVar[int] = 4
    of_ratio: ClassVar[tuple[str, ...]] = ("weight_low", "weight_high")

    divide_by_std: bool = Field(True, description="divide the advantage by the standard deviation")
    weight_low: float | None = Field(None, ge=0, description="the smallest importance weight; null for none")
    weight_high: float = Field(5.0, gt=0, description="the largest importance weight")

    @model_validator(mode="after")
    def _is_a_range(self) -> Cispo:
        if self.weight_low is not None and self.weight_low >= self.weight_high:
            low, high = self.weight_low, self.weight_high
            raise ValueError(f"weight_low: {low:g} is not below weight_high: {high:g}: all weights are the same")
        return self

    def surrogate(self) -> Surrogate:
        from ingot.train.losses.surrogates import ClippedWeight

        return ClippedWeight(self.weight_low, self.weight_high)
