"""Distillation from a teacher with any tokenizer: GOLD (Patiño et al. 2025) on ULD (Boizard et al., arXiv 2402.12030).

The teacher reads the conversation in its own template and tokens. Where runs of both sides' tokens spell the same bytes, their
distributions are merged into one a side; tokens that mean the same to both are compared by the divergence of gkd, the others by
the distance of their sorted probabilities (train/losses/gold.py has the formulas). With one tokenizer on both sides it is gkd.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from ingot.post.algorithm import AcrossAlgorithm

if TYPE_CHECKING:
    from torch import Tensor

    from ingot.train.losses.divergence import Divergence
    from ingot.train.losses.gold import Shared


class Gold(AcrossAlgorithm):
    """A divergence from a teacher with any tokenizer, over whole vocabularies."""

    beta: float = Field(
        0.5, ge=0, le=1, description="0: KL(teacher ‖ student), 1: KL(student ‖ teacher), between: Jensen–Shannon"
    )
    matched_weight: float | None = Field(
        None,
        ge=0,
        le=1,
        description="weight of tokens that both vocabularies have; the others have the rest of 1. null: their share of the "
        "teacher's vocabulary",
    )
    merge: Literal["observed", "bayesian"] = Field(
        "observed",
        description="which distribution of several tokens is compared: that before the first, or that before the last",
    )

    @property
    def last(self) -> bool:
        return self.merge == "bayesian"

    def compare(self, heads: Mapping[str, Callable[[Tensor], Tensor]], shared: Mapping[str, Shared]) -> Divergence:
        from ingot.train.losses.gold import GoldDivergence

        return GoldDivergence(beta=self.beta, matched_weight=self.matched_weight, teachers=heads, shared=shared)
