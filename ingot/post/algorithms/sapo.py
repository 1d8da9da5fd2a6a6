"""SAPO (arXiv 2511.20347): a smooth gate in place of the clip.

    loss = −mean_i mean_t 4/τ · σ( τ (r_t − 1) ) A_i,      τ = 1 for A > 0, 1.05 for A < 0

with GRPO's advantage divided by the standard deviation. With one update on a batch r is 1, where the gate has slope 1 whatever τ
is: the stage makes four updates, unless it says otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field

from ingot.post.rl.objective import GroupRelative

if TYPE_CHECKING:
    from ingot.train.losses.surrogates import Surrogate


class Sapo(GroupRelative):
    """Soft adaptive policy optimisation."""

    mini_batches: ClassVar[int] = 4
    of_ratio: ClassVar[tuple[str, ...]] = ("gate_positive", "gate_negative")

    divide_by_std: bool = Field(True, description="divide the advantage by the standard deviation")
    gate_positive: float = Field(1.0, gt=0, description="steepness of the gate where A > 0")
    gate_negative: float = Field(1.05, gt=0, description="steepness of the gate where A < 0")
    aggregation: Literal["token", "sequence", "group", "constant"] = Field(
        "sequence", description="the mean is over tokens, answers, tasks, or answers times a constant length"
    )

    def surrogate(self) -> Surrogate:
        from ingot.train.losses.surrogates import SoftGate

        return SoftGate(self.gate_positive, self.gate_negative)
