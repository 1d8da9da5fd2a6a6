"""Questions that need no thinking, asked in the mode without it: the prompt closes the thinking block already.

A fact is asked in several wordings. The split is by question, so that a test question asks a fact that training showed
in other words: what is tested is answering directly, not a sum that was never seen.
"""

from __future__ import annotations

import random
import re
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from ingot.envs.task import Task, TaskKind, make_task
from ingot.tokens.chat import Message

SUMS = ("{} + {}?", "{} plus {}?", "What is {} + {}?", "What is {} plus {}?", "Add {} and {}.", "Sum of {} and {}?")
LASTS = ("Last letter: {}", "Last of: {}", "Final letter: {}")
LETTERS = "abcdefghijklmnopqrstuvwxyz"


class NoThink(TaskKind):
    """Questions so easy that the answer comes directly: one-digit sums and the last letter of a word."""

    label: ClassVar[str] = "direct questions"
    operations: tuple[Literal["sum", "last"], ...] = Field(
        ("sum",), min_length=1, description="operations to draw from, each equally often"
    )
    largest: int = Field(9, ge=3, le=9, description="largest number in a sum")
    letters_min: int = Field(2, ge=1, le=9, description="letters of the shortest words")
    letters_max: int = Field(4, ge=1, le=9, description="letters of the longest words")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.letters_min > self.letters_max:
            raise ValueError(f"letters_min ({self.letters_min}) is larger than letters_max ({self.letters_max})")
        return self

    def draw(self, rng: random.Random) -> Task:
        if rng.choice(self.operations) == "sum":
            left, right = (rng.randint(0, self.largest) for _ in range(2))
            return make_task(self.kind, rng.choice(SUMS).format(left, right), str(left + right), thinking=False)
        length = rng.randint(self.letters_min, self.letters_max)
        word = [rng.choice(LETTERS) for _ in range(length)]
        return make_task(self.kind, rng.choice(LASTS).format(" ".join(word)), word[-1], thinking=False)

    def solution(self, task: Task) -> list[Message]:
        return [Message(role="assistant", content=work_out(task.question))]

    def weaker(self, task: Task, rng: random.Random) -> list[Message]:
        answer = work_out(task.question)
        if answer.isdigit():
            wrong = str(int(answer) + rng.choice((1, 2) if answer == "0" else (-1, 1)))
        else:
            wrong = rng.choice([letter for letter in LETTERS if letter != answer])
        return [Message(role="assistant", content=wrong)]


def work_out(question: str) -> str:
    """The answer of a question that this kind wrote."""
    numbers = re.findall(r"[0-9]+", question)
    return str(sum(map(int, numbers))) if numbers else question[-1]
