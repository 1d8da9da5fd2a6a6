"""MATH (Hendrycks et al. 2021, arXiv 2103.03874) and sets of its form: competition problems with LaTeX answers.

Rows: {"problem", "answer", "solution"}; `level` and `subject` may choose among them.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from ingot.envs.rows import Row
from ingot.envs.task import Task
from ingot.envs.tasks._math_problems import MathProblems


class Math(MathProblems):
    """Competition problems, answered by a number or an expression."""

    label: ClassVar[str] = "MATH"
    levels: tuple[str, ...] = Field((), description='only rows whose `level` is one of these, as in ["Level 1"]')
    subjects: tuple[str, ...] = Field((), description="only rows whose `subject` is one of these")

    def read(self, row: Row, place: str) -> Task | None:
        if self.levels and str(row.get("level")) not in self.levels:
            return None
        if self.subjects and str(row.get("subject")) not in self.subjects:
            return None
        return super().read(row, place)
