"""A task of your own: which of two numbers is larger. Change it: `ingot run recipe.yaml` sees that the file has changed."""

from __future__ import annotations

import random

from pydantic import Field

from ingot.envs.environment import Environment
from ingot.envs.task import Task
from ingot.tokens.chat import Message

WORDINGS = ("Which is larger, {} or {}?", "{} or {}: which is larger?", "What is the larger of {} and {}?")


class Larger(Environment):
    """Which of two numbers is larger, answered after a thought."""

    largest: int = Field(99, ge=2, description="the largest number")

    def draw(self, rng: random.Random) -> Task:
        """One question. The `fact` is what it asks, whatever the wording and order: a fact is trained on or held out."""
        left, right = rng.sample(range(self.largest + 1), 2)
        question = rng.choice(WORDINGS).format(left, right)
        fact = f"{min(left, right)} and {max(left, right)}"
        return self.ask(question, str(max(left, right)), fact=fact, asked=(left, right))

    def solution(self, task: Task) -> list[Message]:
        """What SFT learns from. RL needs no solution, only the score: by default, whether the answer is right."""
        left, right = task.asked
        thought = f"{left:02}{'>' if left > right else '<'}{right:02}"
        return [Message(role="assistant", thinking=thought, content=task.answer)]
