"""Numbers too large to work out in the head: call the calculator with the expression, then say what it said.

The reward asks for all of it: a well-formed call whose value is right, and a final answer equal to that value.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from ingot.envs.environment import Environment, in_place
from ingot.envs.episode import Score
from ingot.envs.task import Task
from ingot.envs.tasks._wording import word
from ingot.envs.tasks.arithmetic import TYPED_HELP, WORDINGS, arithmetic_fact
from ingot.envs.tools import calculator as tool
from ingot.envs.verifiers.text.reply import final_content, format_ok, same_number
from ingot.tokens.chat import Message, ToolCall

BEFORE, AFTER = "large numbers", "tool result"


class Calculator(Environment):
    """Numbers too large for the head: the right behaviour is to call the calculator and to repeat its result."""

    label: ClassVar[str] = "calculator tasks"
    operators: tuple[Literal["+", "-", "*"], ...] = Field(
        ("+", "-"), min_length=1, description="operators to draw from, each equally often"
    )
    digits_min: int = Field(3, ge=1, le=9, description="digits of the smallest numbers")
    digits_max: int = Field(3, ge=2, le=9, description="digits of the largest numbers")
    head_digits: int = Field(
        0,
        ge=0,
        le=8,
        description="leave out sums and differences of numbers with at most this many digits, which the model should compute "
        "itself",
    )
    thinking: bool = Field(True, description="think before the call; without, the call comes directly")
    typed: bool = Field(False, description=TYPED_HELP)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.digits_min > self.digits_max:
            raise ValueError(f"digits_min ({self.digits_min}) is larger than digits_max ({self.digits_max})")
        if self.head_digits >= self.digits_max:  # no sum would be left
            raise ValueError(f"head_digits ({self.head_digits}) is not smaller than digits_max ({self.digits_max})")
        return self

    def draw(self, rng: random.Random) -> Task:
        operator = rng.choice(self.operators)
        left, right = self._number(rng), self._number(rng)
        while operator != "*" and max(left, right) < 10**self.head_digits:
            left, right = self._number(rng), self._number(rng)
        return self.ask(
            word(WORDINGS[self.typed][operator], rng, left, right),
            tool.calculator(f"{left} {operator} {right}"),
            fact=arithmetic_fact(left, operator, right),
            asked=(left, operator, right),
            tools=(tool.CALCULATOR,),
            thinking=self.thinking,
        )

    def _number(self, rng: random.Random) -> int:
        digits = rng.randint(self.digits_min, self.digits_max)
        return rng.randrange(10 ** (digits - 1) if digits > 1 else 0, 10**digits)

    def solution(self, task: Task) -> list[Message]:
        left, operator, right = task.asked
        return self._conversation(task, f"{left} {operator} {right}")

    def weaker(self, task: Task, rng: random.Random) -> list[Message]:
        """Calls the tool with one wrong digit and repeats its result."""
        left, operator, right = task.asked
        return self._conversation(task, f"{left} {operator} {right + rng.choice((-10, -1, 1, 10))}")

    def _conversation(self, task: Task, expression: str) -> list[Message]:
        call = ToolCall(name=tool.NAME, arguments={"expression": expression})
        result = tool.calculator(expression)
        before, after = (BEFORE, AFTER) if task.thinking else (None, None)
        return [
            Message(role="assistant", content="", thinking=before, tool_calls=[call]),
            Message(role="tool", content=result),
            Message(role="assistant", content=result, thinking=after),
        ]

    @in_place
    def score(self, task: Task, messages: Sequence[Message]) -> Score:
        correct = same_number(final_content(messages), task.answer)
        well_formed = format_ok(messages, task.thinking)
        called = any(
            call.name == tool.NAME and same_number(tool.CALCULATOR.answer_here(call.arguments), task.answer)
            for message in messages
            for call in message.tool_calls
        )
        reward = float(correct and well_formed and called)
        return Score(reward, correct, well_formed, {"tool_call_success": float(called)})
