"""Word problems and exercises from templates, each with its worked thinking: equations, percentages, divisors, remainders,
probability, sequences, fractions.

A level sets the size of the numbers. The answer is a whole number or a fraction; every spelling of the right number counts
(3/4, 0.75, \\frac{3}{4}, \\boxed{…}), an unfinished calculation such as 2 + 3 does not.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import ClassVar, Literal, NamedTuple, get_args

from pydantic import Field

from ingot.envs.environment import Environment
from ingot.envs.episode import Score
from ingot.envs.task import Task
from ingot.envs.tasks._wording import word
from ingot.envs.verifiers.math.answer_numbers import plain_number
from ingot.envs.verifiers.math.answer_text import canonical, too_long
from ingot.envs.verifiers.text.reply import final_content, format_ok
from ingot.tokens.chat import Message

Topic = Literal["linear", "percentage", "gcd", "lcm", "remainder", "probability", "sequence", "fractions"]
FORM = " Answer with the number only, as a whole number or a fraction like 3/4."


class TemplateProblem(NamedTuple):
    """What is asked (values for the wording), the lines of the thinking, and the answer."""

    values: tuple[object, ...]
    lines: list[str]
    answer: Fraction | int


class MathTemplates(Environment):
    """Exercises from arithmetic to early algebra with worked thinking; the answer is one exact number."""

    label: ClassVar[str] = "math templates"
    topics: tuple[Topic, ...] = Field(
        get_args(Topic), min_length=1, description="topics to draw from, each equally often"
    )
    level: int = Field(
        1, ge=1, le=5, description="size of the numbers: at 1 up to about 10, each level about three times that"
    )

    def draw(self, rng: random.Random) -> Task:
        topic = rng.choice(self.topics)
        problem = TEMPLATES[topic](rng, 10 * 3 ** (self.level - 1))
        question = word([each + FORM for each in WORDINGS[topic]], rng, *problem.values)
        asked = (topic, tuple(problem.lines))
        return self.ask(question, str(problem.answer), fact=f"{topic} {problem.values}", asked=asked)

    def solution(self, task: Task) -> list[Message]:
        return [Message(role="assistant", content=task.answer, thinking="\n".join(task.asked[1]))]

    def weaker(self, task: Task, rng: random.Random) -> list[Message]:
        """The right work, and a number nearby."""
        (reply,) = self.solution(task)
        return [replace(reply, content=str(Fraction(task.answer) + rng.choice((-1, 1, 2, Fraction(1, 2)))))]

    def score(self, task: Task, messages: Sequence[Message]) -> Score:
        content = final_content(messages)
        number = None if too_long(content) else plain_number(canonical(content))
        correct, well_formed = number == Fraction(task.answer), format_ok(messages, task.thinking)
        return Score(float(correct and well_formed), correct, well_formed)


def linear(rng: random.Random, size: int) -> TemplateProblem:
    """a x + b = c with a whole x that may be negative."""
    factor, x, added = rng.randint(2, size), rng.randint(-size, size), rng.randint(1, 2 * size)
    total = factor * x + added
    lines = [f"{factor}x = {total} - {added} = {total - added}", f"x = {total - added} / {factor} = {x}"]
    return TemplateProblem((factor, added, total), lines, x)


def percentage(rng: random.Random, size: int) -> TemplateProblem:
    """p % of a number, which need not be whole."""
    percent, number = rng.randint(1, 19) * 5, rng.randint(2, 4 * size) * 5
    product = percent * number
    answer = Fraction(product, 100)
    lines = [f"{percent}% of {number} = {percent} * {number} / 100", f"{percent} * {number} = {product}"]
    return TemplateProblem((percent, number), [*lines, f"{product} / 100 = {answer}"], answer)


def gcd(rng: random.Random, size: int) -> TemplateProblem:
    """The greatest common divisor, by Euclid's algorithm."""
    shared = rng.randint(2, size)
    left, right = two(rng, shared, size)
    return TemplateProblem((left, right), euclid(left, right), math.gcd(left, right))


def lcm(rng: random.Random, size: int) -> TemplateProblem:
    """The least common multiple, by way of the greatest common divisor."""
    shared = rng.randint(1, 6)
    left, right = two(rng, shared, size)
    divisor, product = math.gcd(left, right), left * right
    lines = [*euclid(left, right), f"{left} * {right} = {product}", f"{product} / {divisor} = {product // divisor}"]
    return TemplateProblem((left, right), lines, product // divisor)


def two(rng: random.Random, shared: int, size: int) -> tuple[int, int]:
    """Two different numbers with a common divisor, the larger first."""
    second, first = sorted(rng.sample(range(2, size + 1), 2))
    return shared * first, shared * second


def euclid(left: int, right: int) -> list[str]:
    """Remainders until one is 0; the last divisor is the greatest common one."""
    lines = []
    while right:
        lines.append(f"{left} = {left // right} * {right} + {left % right}")
        left, right = right, left % right
    return [*lines, f"greatest common divisor: {left}"]


def remainder(rng: random.Random, size: int) -> TemplateProblem:
    """A power modulo a number, multiplied out one factor at a time."""
    base, exponent, modulus = rng.randint(2, 2 * size), rng.randint(2, 6), rng.randint(11, 11 + 2 * size)
    value, lines = base % modulus, [f"{base} = {base // modulus} * {modulus} + {base % modulus}"]
    for power in range(2, exponent + 1):
        product = value * (base % modulus)
        value = product % modulus
        lines.append(f"power {power}: {product} = {product // modulus} * {modulus} + {value}")
    return TemplateProblem((base, exponent, modulus), lines, value)


def probability(rng: random.Random, size: int) -> TemplateProblem:
    """Two balls of one colour, without putting the first back."""
    red, blue = rng.randint(2, size), rng.randint(1, 2 * size)
    every = red + blue
    top, bottom = red * (red - 1), every * (every - 1)
    lines = [
        f"balls: {red} + {blue} = {every}",
        f"first red: {red}/{every}, then second red: {red - 1}/{every - 1}",
        f"{red} * {red - 1} = {top}",
        f"{every} * {every - 1} = {bottom}",
        f"{top}/{bottom} = {Fraction(top, bottom)}",
    ]
    return TemplateProblem((red, blue), lines, Fraction(top, bottom))


def sequence(rng: random.Random, size: int) -> TemplateProblem:
    """A term of an arithmetic sequence of which four are shown."""
    start, step, place = rng.randint(-size, size), rng.choice((-1, 1)) * rng.randint(2, size), rng.randint(6, 6 + size)
    shown = ", ".join(str(start + step * number) for number in range(4))
    answer = start + step * (place - 1)
    lines = [
        f"difference: {start + step} - ({start}) = {step}",
        f"steps from the first term to term {place}: {place - 1}",
        f"{place - 1} * ({step}) = {step * (place - 1)}",
        f"{start} + ({step * (place - 1)}) = {answer}",
    ]
    return TemplateProblem((shown, place), lines, answer)


def fractions(rng: random.Random, size: int) -> TemplateProblem:
    """A sum or difference of two fractions."""
    bottoms = rng.randint(2, size + 2), rng.randint(2, size + 2)
    left, right = (Fraction(rng.randint(1, 2 * bottom - 1), bottom) for bottom in bottoms)
    sign = rng.choice("+-")
    if sign == "+" and left < right:  # one order, because both are one fact
        left, right = right, left
    shared = math.lcm(left.denominator, right.denominator)
    first, second = (each.numerator * (shared // each.denominator) for each in (left, right))
    total = first + second if sign == "+" else first - second
    lines = [
        f"common denominator of {left} and {right}: {shared}",
        f"{left} = {first}/{shared}",
        f"{right} = {second}/{shared}",
        f"{first} {sign} {second} = {total}",
        f"{total}/{shared} = {Fraction(total, shared)}",
    ]
    return TemplateProblem((left, sign, right), lines, Fraction(total, shared))


TEMPLATES: dict[str, Callable[[random.Random, int], TemplateProblem]] = {
    **{"linear": linear, "percentage": percentage, "gcd": gcd, "lcm": lcm},
    **{"remainder": remainder, "probability": probability, "sequence": sequence, "fractions": fractions},
}
WORDINGS: dict[str, tuple[str, ...]] = {
    "linear": (
        "Solve {0}x + {1} = {2} for x.",
        "Find x if {0}x + {1} = {2}.",
        "{0} times a number plus {1} is {2}. What is the number?",
        "What must x be so that {0}x + {1} is {2}?",
    ),
    "percentage": (
        "What is {0}% of {1}?",
        "Find {0} percent of {1}.",
        "How much is {0}% of {1}?",
        "A price of {1} coins rises by {0}%. By how many coins?",
    ),
    "gcd": (
        "What is the greatest common divisor of {0} and {1}?",
        "Find gcd({0}, {1}).",
        "Which is the largest number that divides both {0} and {1}?",
    ),
    "lcm": (
        "What is the least common multiple of {0} and {1}?",
        "Find lcm({0}, {1}).",
        "One bell rings every {0} minutes, another every {1} minutes. Both ring now; in how many minutes do they next?",
    ),
    "remainder": (
        "What is the remainder of {0}^{1} divided by {2}?",
        "Compute {0}^{1} mod {2}.",
        "{0} to the power {1} is divided by {2}. What is left over?",
    ),
    "probability": (
        "A bag has {0} red and {1} blue balls. Two are drawn without putting back. What is the probability that both are red?",
        "Out of {0} red and {1} blue balls two are taken at random. How likely is it that both are red?",
        "An urn holds {0} red balls and {1} blue ones; you draw two, one after the other. Find the probability of two red.",
    ),
    "sequence": (
        "The sequence {0} goes on in equal steps. What is term number {1}?",
        "What is term {1} of the arithmetic sequence {0}, …?",
        "Find term number {1} of {0}, … (the difference stays the same).",
    ),
    "fractions": (
        "What is {0} {1} {2}?",
        "Calculate {0} {1} {2}.",
        "Work out {0} {1} {2} as one fraction.",
    ),
}
