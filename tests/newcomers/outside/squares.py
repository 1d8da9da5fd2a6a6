"""A task of my own: squares of whole numbers."""

from __future__ import annotations

import random

from pydantic import Field

from ingot.envs.environment import Environment
from ingot.envs.task import Task
from ingot.tokens.chat import Message


class Squares(Environment):
    """Squares of whole numbers, answered without thinking."""

    largest: int = Field(99, ge=2, description="the largest number that is squared")

    def draw(self, rng: random.Random) -> Task:
        number = rng.randint(0, self.largest)
        return self.ask(f"What is {number} squared?", str(number**2), thinking=False)

    def solution(self, task: Task) -> list[Message]:
        return [Message(role="assistant", content=task.answer)]
