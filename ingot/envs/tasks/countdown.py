"""Countdown: reach a target with given numbers and the four operations, each number exactly once.

    Reach 17 with 3, 4, 5.        3 * 4 = 12, 12 + 5 = 17        3 * 4 + 5

Every expression with the right numbers and the right exact value counts, not only the one that was drawn. A puzzle is made from
a solution in which every step has a positive whole result.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from ingot.envs.environment import Environment, in_place
from ingot.envs.episode import Score
from ingot.envs.task import Task
from ingot.envs.tasks._wording import word
from ingot.envs.verifiers.text.reply import final_content, format_ok
from ingot.tokens.chat import Message
from ingot.workspace.errors import DataError
from ingot.workspace.python_source import parse_python

FORM = "answer with the expression only, with + - * / and parentheses"
WORDINGS = (
    "Use each of the numbers {0} exactly once to reach {1}; " + FORM + ".",
    "Reach {1} with the numbers {0}. Use each exactly once, and " + FORM + ".",
    "Combine {0}, each exactly once, to get {1}: " + FORM + ".",
    "Which expression of {0}, each used exactly once, equals {1}? Please " + FORM + ".",
    "Countdown: the numbers are {0}, the target is {1}. Use every number exactly once and " + FORM + ".",
)
ALIKE = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-"})
LENGTH_LIMIT = 400
TRIES = 1000


class Countdown(Environment):
    """Reach a target with given numbers, each exactly once; every right expression counts."""

    label: ClassVar[str] = "countdown"
    numbers_min: int = Field(3, ge=2, le=10, description="how many numbers the smallest puzzles have")
    numbers_max: int = Field(4, ge=2, le=10, description="how many numbers the largest puzzles have")
    largest: int = Field(20, ge=3, le=1000, description="numbers are drawn from 1 to this one")
    target_max: int = Field(100, ge=10, description="the largest target")
    operators: tuple[Literal["+", "-", "*", "/"], ...] = Field(
        ("+", "-", "*", "/"), min_length=1, description="operators of the drawn solution; an answer may use all four"
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.numbers_min > self.numbers_max:
            raise ValueError(f"numbers_min ({self.numbers_min}) is larger than numbers_max ({self.numbers_max})")
        return self

    def draw(self, rng: random.Random) -> Task:
        for _ in range(TRIES):
            numbers = [rng.randint(1, self.largest) for _ in range(rng.randint(self.numbers_min, self.numbers_max))]
            steps = self._steps(list(numbers), rng)
            if steps and steps[-1][3] <= self.target_max and steps[-1][3] not in numbers:
                target, expression = steps[-1][3], write(steps)
                question = word(WORDINGS, rng, ", ".join(map(str, numbers)), target)
                fact = f"countdown {sorted(numbers)} {target}"
                return self.ask(question, expression, fact=fact, asked=(tuple(numbers), target, tuple(steps)))
        raise DataError(
            f"none of {TRIES} draws reaches a target up to {self.target_max}",
            place=f"task kind {self.kind}",
            fix="allow more operators, a larger target_max, fewer or smaller numbers",
        )

    def _steps(self, values: list[int], rng: random.Random) -> list[tuple[int, str, int, int]]:
        """Combine two values after the other until one is left: (left, operator, right, result) each."""
        steps: list[tuple[int, str, int, int]] = []
        while len(values) > 1:
            rng.shuffle(values)
            left, right = values.pop(), values.pop()
            left, right = max(left, right), min(left, right)
            results = {"+": left + right, "-": left - right, "*": left * right, "/": left // right}
            allowed = [operator for operator in self.operators if _is_plain(left, operator, right)]
            if not allowed:
                return []
            operator = rng.choice(allowed)
            steps.append((left, operator, right, results[operator]))
            values.append(results[operator])
        return steps

    def solution(self, task: Task) -> list[Message]:
        *_, steps = task.asked
        trace = ", ".join(f"{left} {operator} {right} = {result}" for left, operator, right, result in steps)
        return [Message(role="assistant", content=task.answer, thinking=trace)]

    def weaker(self, task: Task, rng: random.Random) -> list[Message]:
        """The right steps, and an expression with another operator."""
        places = [match.start() for match in re.finditer(r"[-+*/]", task.answer)]
        rng.shuffle(places)
        (reply,) = self.solution(task)
        for place in places:
            for operator in "+-":
                changed = task.answer[:place] + operator + task.answer[place + 1 :]
                if not reaches(changed, *task.asked[:2]):
                    return [replace(reply, content=changed)]
        return [replace(reply, content=str(task.asked[1]))]

    @in_place
    def score(self, task: Task, messages: Sequence[Message]) -> Score:
        correct = reaches(final_content(messages), *task.asked[:2])
        well_formed = format_ok(messages, task.thinking)
        return Score(float(correct and well_formed), correct, well_formed)


def _is_plain(left: int, operator: str, right: int) -> bool:
    """Whether a step has a positive whole result and does something."""
    return {"+": True, "-": left > right, "*": right > 1, "/": right > 1 and left % right == 0}[operator]


def write(steps: Sequence[tuple[int, str, int, int]]) -> str:
    """The steps as one expression, with the parentheses that it needs."""
    made: dict[
        int, list[tuple[str, str]]
    ] = {}  # results that a later step uses: their text and their outermost operator

    def operand(value: int) -> tuple[str, str]:
        return made[value].pop() if made.get(value) else (str(value), "")

    text = ""
    for left, operator, right, result in steps:
        (first, first_operator), (second, second_operator) = operand(left), operand(right)
        if operator in "*/" and first_operator in ("+", "-"):
            first = f"({first})"
        if second_operator and (operator in "-/" or (operator == "*" and second_operator != "*")):
            second = f"({second})"
        text = f"{first} {operator} {second}"
        made.setdefault(result, []).append((text, operator))
    return text


def reaches(text: str, numbers: Sequence[int], target: int) -> bool:
    """Whether a text is an expression of exactly these numbers with this value."""
    text = text.strip().translate(ALIKE)
    if len(text) > LENGTH_LIMIT or not re.fullmatch(r"[0-9+\-*/() ]+", text) or re.search(r"\*\s*\*|/\s*/", text):
        return False
    try:
        tree = parse_python(text, "eval").body
    except (SyntaxError, MemoryError, RecursionError):  # what Python's parser says to text that is no expression
        return False
    used: list[int] = []
    value = _value(tree, used)
    return value == target and sorted(used) == sorted(numbers)


def _value(node: ast.expr, used: list[int]) -> Fraction | None:
    """The exact value, None if there is none; the numbers go to `used`."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        used.append(node.value)
        return Fraction(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _value(node.operand, used)
        return None if value is None else -value
    if not isinstance(node, ast.BinOp):
        return None
    left, right = _value(node.left, used), _value(node.right, used)
    if left is None or right is None:
        return None
    match node.op:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div() if right != 0:
            return left / right
    return None
