"""Learnability (arXiv 2502.12272): tasks come in proportion to the variance of their reward, which is what a group compares.

weight = max(floor, 4 p (1 − p)),     p the pass rate; 1 at p = 1/2
"""

from __future__ import annotations

from pydantic import Field

from ingot.post.rl.curriculum.curriculum import Curriculum


class Learnable(Curriculum):
    """Most often what is solved half of the time."""

    floor: float = Field(0.05, ge=0, le=1, description="the least weight, so that rates of other tasks stay known")

    def weight(self, rate: float) -> float:
        return max(self.floor, 4 * rate * (1 - rate))
