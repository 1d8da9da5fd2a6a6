"""Prioritised sampling (Kimi k1.5, arXiv 2501.12599): tasks come in proportion to how often they are failed.

weight = max(floor, 1 − pass rate)
"""

from __future__ import annotations

from pydantic import Field

from ingot.post.rl.curriculum.curriculum import Curriculum


class Prioritized(Curriculum):
    """The harder, the more often."""

    floor: float = Field(0.05, ge=0, le=1, description="the least weight, so that solved tasks are asked now and then")

    def weight(self, rate: float) -> float:
        return max(self.floor, 1 - rate)
