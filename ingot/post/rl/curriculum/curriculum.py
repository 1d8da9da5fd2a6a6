"""What a curriculum is: how often a task is asked, by how often it was solved lately.

A task of the mixture is asked with the chance `weight(rate)`, else passed over for the next one; so the share of tasks with
weight w among those asked is their share of the mixture times w, divided by the mean weight. A curriculum is one file in
post/rl/curriculum/weights/, or a class in a file of the user's own (`curriculum: my_curriculum.py:Mine`).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from pydantic import Field

from ingot.workspace.kinds import Kind, Kinds


class Curriculum(Kind):
    """The base of every curriculum."""

    key: ClassVar[str] = "curriculum"
    package: ClassVar[str] = "ingot.post.rl.curriculum.weights"
    curriculum: str = Field("", description="the curriculum: a name, or file.py:Name")

    @abstractmethod
    def weight(self, rate: float) -> float:
        """The chance, from 0 to 1, that a task with this recent pass rate is asked; one that was never asked always is."""


CURRICULA = Kinds(Curriculum, "curriculum")  # type: ignore[type-abstract]  # kinds are found by their base
