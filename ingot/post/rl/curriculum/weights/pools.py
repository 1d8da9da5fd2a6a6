"""Pools by difficulty, as INTELLECT-3 has them (arXiv 2512.16144): easy, normal and hard by pass rate, each with a weight.

weight = hard_weight if p <= hard,    easy_weight if p >= easy,    else 1
"""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from ingot.post.rl.curriculum.curriculum import Curriculum


class Pools(Curriculum):
    """Three pools."""

    hard: float = Field(0.0, ge=0, le=1, description="highest pass rate of a hard task")
    easy: float = Field(1.0, ge=0, le=1, description="lowest pass rate of an easy task")
    hard_weight: float = Field(0.25, ge=0, le=1, description="weight of hard tasks; normal ones have 1")
    easy_weight: float = Field(0.05, ge=0, le=1, description="weight of easy tasks")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.hard >= self.easy:
            raise ValueError(f"hard ({self.hard}) must be below easy ({self.easy})")
        return self

    def weight(self, rate: float) -> float:
        if rate <= self.hard:
            return self.hard_weight
        return self.easy_weight if rate >= self.easy else 1.0
