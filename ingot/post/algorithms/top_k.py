"""Distillation from the teacher's k likeliest tokens at every token of an answer.

k numbers and not the vocabulary are all that has to be stored, or sent by a server. They are compared with the student's
probabilities of the same tokens (train/losses/divergence.py). With given answers (`on_policy: 0`)
the stage asks the teacher once, keeps what it said, and trains without it.

Forward KL (β = 0) is the default: in the reverse direction the student can lower the loss by moving all of its probability off
the k tokens, which the tail punishes only as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pydantic import Field

from ingot.post.algorithm import DivergenceAlgorithm

if TYPE_CHECKING:
    from torch import Tensor

    from ingot.train.losses.divergence import Divergence


class TopK(DivergenceAlgorithm):
    """A divergence from the teacher over its k likeliest tokens."""

    k: int = Field(64, gt=0, description="how many of the teacher's likeliest tokens are compared")
    tail: bool = Field(
        True,
        description="one more outcome for all other tokens together; false: both sides are renormalised over the k",
    )
    beta: float = Field(
        0.0, ge=0, le=1, description="0: KL(teacher ‖ student), 1: KL(student ‖ teacher), between: Jensen–Shannon"
    )

    @property
    def likeliest(self) -> int | None:
        return self.k

    def divergence(self, heads: Mapping[str, Callable[[Tensor], Tensor]]) -> Divergence:
        from ingot.train.losses.divergence import TopKDivergence

        return TopKDivergence(beta=self.beta, tail=self.tail)
