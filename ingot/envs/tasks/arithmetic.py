"""Sums, differences and small products, worked out column by column from the right, as on paper.

Each step of the trace is one fact about digits, written so that it is literally true and so that what the next step
needs stands at a fixed place just before it:

    What is 37 + 48?   7+8+0=15 3+4+1=08     85      digit + digit + carry = carry and digit
    What is 52 - 37?   2-7-0=5-10 5-3-1=1-0  15      digit - digit - borrow = digit - ten times the next borrow
    What is 37 * 4?    7*4+0=28 3*4+2=14     148     digit * digit + carry = carry and digit
"""

from __future__ import annotations

import random
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from ingot.envs.environment import Environment
from ingot.envs.task import Task
from ingot.envs.tasks._wording import word
from ingot.tokens.chat import Message

EXPRESSIONS = ("What is {} # {}?", "How much is {} # {}?", "Calculate {} # {}.", "{} # {}", "{}#{}", "{} # {} =")
TYPED_EXPRESSIONS = (
    *("What is {} # {}?", "What's {} # {}?", "Whats {}#{}", "How much is {} # {}?", "Calculate {} # {}."),
    *("And {} # {}?", "{} # {}", "{}#{}", "{} # {} =", "{} # {}?"),
)
WORDS = {
    "+": ("What is {} plus {}?", "{} plus {}?", "Add {} and {}.", "Can you add {} and {}?", "The sum of {} and {}?"),
    "-": ("What is {} minus {}?", "{} minus {}?"),
    "*": ("What is {} times {}?", "{} times {}?", "Multiply {} by {}."),
}
TYPED_HELP = "ask also in the short forms that people type: whats 7+8"


def _wordings(expressions: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """By operator."""
    return {sign: (*(each.replace("#", sign) for each in expressions), *WORDS[sign]) for sign in WORDS}


WORDINGS = {False: _wordings(EXPRESSIONS), True: _wordings(TYPED_EXPRESSIONS)}  # by `typed`


class Arithmetic(Environment):
    """Sums, differences and small products, worked out column by column in the thinking trace; its levels are digits."""

    label: ClassVar[str] = "arithmetic"
    operators: tuple[Literal["+", "-", "*"], ...] = Field(
        ("+",), min_length=1, description="operators to draw from, each equally often"
    )
    digits_min: int = Field(2, ge=1, le=9, description="digits of the smallest numbers")
    digits_max: int = Field(2, ge=1, le=9, description="digits of the largest numbers, which are drawn more often")
    short: float = Field(
        0.0,
        ge=0,
        le=1,
        description="share of tasks with numbers of `digits_min` digits only, beside those drawn so anyway",
    )
    multiplier_max: int = Field(5, ge=2, le=9, description="the right side of a product is drawn from 2 to this digit")
    typed: bool = Field(False, description=TYPED_HELP)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.digits_min > self.digits_max:
            raise ValueError(f"digits_min ({self.digits_min}) is larger than digits_max ({self.digits_max})")
        return self

    def draw(self, rng: random.Random) -> Task:
        operator = rng.choice(self.operators)
        short = self.short > 0 and rng.random() < self.short
        left, right = self._number(rng, short), self._number(rng, short)
        if operator == "*":
            right = rng.randint(2, self.multiplier_max)
        if operator == "-" and left < right:
            left, right = right, left
        question, answer = word(WORDINGS[self.typed][operator], rng, left, right), work_out(left, operator, right)[1]
        asked, level = (left, operator, right), len(str(max(left, right)))
        return self.ask(question, answer, fact=arithmetic_fact(*asked), asked=asked, data={"level": level})

    def _number(self, rng: random.Random, short: bool) -> int:
        # the longer of two draws: sums of long numbers have more different columns, and so take more examples to learn
        digits = self.digits_min if short else max(rng.randint(self.digits_min, self.digits_max) for _ in range(2))
        return rng.randrange(10 ** (digits - 1) if digits > 1 else 0, 10**digits)

    def solution(self, task: Task) -> list[Message]:
        return [self._reply(task, None)]

    def weaker(self, task: Task, rng: random.Random) -> list[Message]:
        left, operator, right = task.asked
        columns = len(str(left if operator == "*" else max(left, right)))
        return [self._reply(task, rng.randrange(columns))]

    def _reply(self, task: Task, mistake: int | None) -> Message:
        left, operator, right = task.asked
        trace, answer = work_out(left, operator, right, mistake)
        return Message(role="assistant", content=answer, thinking=trace)


def arithmetic_fact(left: int, operator: str, right: int) -> str:
    """What is asked: the order of a sum's or a product's numbers does not matter."""
    first, second = (left, right) if operator == "-" else sorted((left, right))
    return f"{first} {operator} {second}"


def work_out(left: int, operator: str, right: int, mistake: int | None = None) -> tuple[str, str]:
    """The trace and the answer. `mistake` is a column whose digit comes out one too high (9 becomes 0)."""
    columns = len(str(left if operator == "*" else max(left, right)))
    steps, result, carry = [], 0, 0
    for column in range(columns):
        first = left // 10**column % 10
        second = right if operator == "*" else right // 10**column % 10
        if operator == "-":
            total = first - second - carry
        else:
            total = (first * second if operator == "*" else first + second) + carry
        digit, next_carry = total % 10, abs(total // 10)
        if column == mistake:
            digit = (digit + 1) % 10
        sign = "-" if operator == "-" else "+"
        outcome = f"{digit}-{10 * next_carry}" if operator == "-" else f"{next_carry}{digit}"
        steps.append(f"{first}{operator}{second}{sign}{carry}={outcome}")
        result, carry = result + digit * 10**column, next_carry
    return " ".join(steps), str(result + (0 if operator == "-" else carry * 10**columns))
