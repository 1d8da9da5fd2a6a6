"""DPPO: tokens are masked by how far their probability has moved, not by its ratio (prime-rl's default loss).

    loss = Σ_t [ −m_t w_t A_t + 1e-3 (log w_t)² ] / tokens,      w = π/μ,      A = R − mean(R)
    m_t  = 0 where A > 0 and π − μ > 0.2, or A < 0 and π − μ < −0.2; else 1

A ratio is large first of all for rare tokens, whose probability has hardly moved. The squared term holds every token to the
sampler, masked or not. prime-rl's documentation prints min(w, δ) in place of the mask; its code, which this is, has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from ingot.post.rl.objective import GroupRelative

if TYPE_CHECKING:
    from ingot.train.losses.surrogates import Surrogate


class Dppo(GroupRelative):
    """A trust region in probabilities."""

    old_policy: Literal["trainer", "sampler"] = Field(
        "sampler", description="whose log-probabilities stand for π_old: the trainer's, computed once a batch, or μ"
    )
    probability_bound: float = Field(0.2, gt=0, le=1, description="how far a probability may move where A says so")
    drift_weight: float = Field(1e-3, ge=0, description="coefficient of the squared log ratio")

    def surrogate(self) -> Surrogate:
        from ingot.train.losses.surrogates import ProbabilityMask

        return ProbabilityMask(self.probability_bound, self.drift_weight)
