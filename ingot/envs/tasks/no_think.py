"""Questions that need no thinking, asked in the mode without it: the prompt closes the thinking block already."""

from __future__ import annotations

import random
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from ingot.envs.environment import Environment
from ingot.envs.task import Task
from ingot.envs.tasks._wording import word
from ingot.envs.tasks.arithmetic import TYPED_HELP, arithmetic_fact
from ingot.envs.tasks.arithmetic import WORDINGS as SUMS
from ingot.envs.tasks.strings import wordings as asked_letters
from ingot.tokens.chat import Message

LETTERS = "abcdefghijklmnopqrstuvwxyz"
PARITY = ("Is {} even or odd?", "{}: even or odd?", "Even or odd: {}")


class NoThink(Environment):
    """Questions so easy that the answer comes directly: one-digit sums, the last letter of a word, even or odd."""

    label: ClassVar[str] = "direct questions"
    operations: tuple[Literal["sum", "last", "parity"], ...] = Field(
        ("sum",), min_length=1, description="operations to draw from, each equally often"
    )
    largest: int = Field(9, ge=3, le=9, description="largest number in a sum")
    letters_min: int = Field(2, ge=1, le=9, description="letters of the shortest words")
    letters_max: int = Field(4, ge=1, le=9, description="letters of the longest words")
    spelled: bool = Field(True, description="write a word with spaces between letters, so that a letter is one token")
    typed: bool = Field(False, description=TYPED_HELP)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.letters_min > self.letters_max:
            raise ValueError(f"letters_min ({self.letters_min}) is larger than letters_max ({self.letters_max})")
        return self

    def draw(self, rng: random.Random) -> Task:
        wordings: tuple[str, ...]
        values: tuple[object, ...]
        match rng.choice(self.operations):
            case "sum":
                left, right = (rng.randint(0, self.largest) for _ in range(2))
                wordings, values, answer = SUMS[self.typed]["+"], (left, right), str(left + right)
                fact = arithmetic_fact(left, "+", right)
            case "last":
                letters = [rng.choice(LETTERS) for _ in range(rng.randint(self.letters_min, self.letters_max))]
                wordings, values = asked_letters("last", self.typed), ((" " if self.spelled else "").join(letters),)
                answer = letters[-1]
                fact = f"last {''.join(letters)}"
            case _:
                number = rng.randrange(1000)
                wordings, values, answer = PARITY, (number,), "odd" if number % 2 else "even"
                fact = f"parity {number}"
        question = word(wordings, rng, *values)
        return self.ask(question, answer, fact=fact, thinking=False)

    def solution(self, task: Task) -> list[Message]:
        return [Message(role="assistant", content=task.answer)]
