"""Templates of exercises: answers against SymPy and counting, every line of the thinking by exact fractions."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import combinations

import pytest
import sympy

from ingot.envs.task import make_task
from ingot.envs.tasks.math_templates import TEMPLATES, MathTemplates, Topic
from tests.envs.tasks.test_puzzles import reply


def _expected(topic: str, numbers: list[Fraction]) -> Fraction:
    """The answer by SymPy, or by counting."""
    x = sympy.Symbol("x")
    if topic == "linear":
        factor, added, total = map(sympy.Rational, numbers)
        (found,) = sympy.solve(sympy.Eq(factor * x + added, total), x)
    elif topic == "percentage":
        found = sympy.Rational(numbers[0], 100) * sympy.Rational(numbers[1])
    elif topic in ("gcd", "lcm"):
        found = getattr(sympy, topic)(*map(int, numbers))
    elif topic == "remainder":
        found = sympy.Mod(sympy.Integer(int(numbers[0])) ** int(numbers[1]), int(numbers[2]))
    elif topic == "probability":
        red, blue = map(int, numbers)
        pairs = list(combinations([True] * red + [False] * blue, 2))
        found = sympy.Rational(sum(one and other for one, other in pairs), len(pairs))
    else:
        start, second, *_, place = numbers
        found = sympy.sequence(sympy.Rational(start) + x * sympy.Rational(second - start), (x, 0, sympy.oo)).coeff(
            int(place) - 1
        )
    return Fraction(str(found))


@pytest.mark.parametrize("topic", TEMPLATES)
@pytest.mark.parametrize("level", [1, 4])
def test_templates_agree_with_sympy_read_from_the_question(topic: Topic, level: int) -> None:
    kind = MathTemplates(topics=(topic,), level=level)
    for task in kind.generate(4, 12, "train"):
        text = re.split(r" ?answer with", task.question, flags=re.IGNORECASE)[0]
        if topic == "fractions":
            left, sign, right = re.findall(r"\d+(?:/\d+)?|[+-](?= \d)", text)
            expected = Fraction(left) + Fraction(right) if sign == "+" else Fraction(left) - Fraction(right)
        elif topic == "sequence":
            shown = re.findall(r"-?\d+", re.search(r"(?:-?\d+, ){3}-?\d+", text)[0])  # type: ignore[index]
            place = re.search(r"term (?:number )?(\d+)", text)
            assert place is not None
            expected = _expected(topic, [*map(Fraction, shown), Fraction(place[1])])
        else:
            expected = _expected(topic, [Fraction(each) for each in re.findall(r"-?\d+", text.replace("x", ""))])
        assert Fraction(task.answer) == expected, task.question
        for line in task.asked[1]:
            _check(line, task.answer)


def _check(line: str, answer: str) -> None:
    """Every equality in a line of the thinking holds exactly."""
    line = re.sub(r"^[a-z ]+(?:\d+)?(?: and [\d/]+)?: ", "", line)
    sides = re.sub(r"(\d+)% of (\d+)", r"\1 * \2 / 100", line).split(" = ")
    if len(sides) < 2:
        return
    exact = [re.sub(r"(\d+)x|\bx\b", lambda found: f"{found[1] or 1}*({answer})", side) for side in sides]
    exact = [re.sub(r"(\d+)", r"Fraction(\1)", side) for side in exact]
    assert len({eval(side, {"Fraction": Fraction}) for side in exact}) == 1, line


def test_a_template_takes_every_spelling_of_the_number_and_no_calculation() -> None:
    task = make_task("math_templates", "?", "3/4", asked=("fractions", ()))
    kind = MathTemplates()
    for text in ("3/4", "0.75", r"\frac{3}{4}", r"$\boxed{\frac34}$", " 3/4. ", "6/8"):
        assert kind.score(task, reply(text)).correct, text
    for text in ("1/2 + 1/4", "3:4", "3/4 or 1/4", "x = 1", "75%", "0.7500001"):
        assert not kind.score(task, reply(text)).correct, text
