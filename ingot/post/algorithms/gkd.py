"""Generalised knowledge distillation: a divergence over the whole vocabulary at every token of an answer.

Agarwal et al., arXiv 2306.13649. β = 1 is the reverse KL(student ‖ teacher), β = 0 the forward KL(teacher ‖ student), and between
them lies the generalised Jensen–Shannon divergence (formulas: train/losses/divergence.py). Unlike reverse_kl it is no estimate
from sampled tokens: every token's gradient is exact, at the price of the teacher's head for every token. Whose answers they are,
the student's own or given ones, is the stage's option `on_policy` (GKD's λ).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pydantic import Field

from ingot.post.algorithm import DivergenceAlgorithm

if TYPE_CHECKING:
    from torch import Tensor

    from ingot.train.losses.divergence import Divergence


class Gkd(DivergenceAlgorithm):
    """A divergence from the teacher over the whole vocabulary."""

    beta: float = Field(
        1.0, ge=0, le=1, description="0: KL(teacher ‖ student), 1: KL(student ‖ teacher), between: Jensen–Shannon"
    )

    def divergence(self, heads: Mapping[str, Callable[[Tensor], Tensor]]) -> Divergence:
        from ingot.train.losses.divergence import FullDivergence

        return FullDivergence(beta=self.beta, teachers=heads)
