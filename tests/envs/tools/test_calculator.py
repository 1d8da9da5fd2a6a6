"""The calculator against Python's own arithmetic, and against what must not run."""

from __future__ import annotations

import time
import warnings
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.envs.tools.calculator import CALCULATOR, CalculatorError, calculator, evaluate, format_value

NUMBERS = st.integers(0, 9999).map(str)
EXPRESSIONS = st.recursive(
    NUMBERS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%", " + ", " * "]), inner).map("".join),
        inner.map(lambda text: f"({text})"),
        inner.map(lambda text: f"-({text})"),
    ),
    max_leaves=8,
)


class Exact:
    """Numbers under eval: Python's own precedence and operators over exact fractions."""

    @staticmethod
    def value(expression: str) -> Fraction | None:
        wrapped = ""
        digits = ""
        for character in expression + " ":
            if character.isdigit():
                digits += character
                continue
            wrapped += (f"F({digits})" if digits else "") + character
            digits = ""
        try:
            return Fraction(eval(wrapped, {"F": Fraction}))  # the test's own text: digits, operators, parentheses
        except ZeroDivisionError:
            return None


@given(EXPRESSIONS)
def test_agrees_with_python(expression: str) -> None:
    expected = Exact.value(expression)
    if expected is None:
        assert calculator(expression) == "error: division by zero"
        return
    try:
        assert evaluate(expression) == expected
    except CalculatorError as error:
        assert str(error).startswith(("too large", "longer than"))
        return
    text = calculator(expression)
    assert abs(Fraction(text) - expected) <= Fraction(1, 2 * 10**10)
    if expected.denominator == 1:
        assert text == str(int(expected))


@given(st.text(alphabet="0123456789+-*/%(). _eEjx,[]", max_size=40))
def test_any_text_gives_text(expression: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = calculator(expression)
    if not result.startswith("error: "):
        assert float(result) == pytest.approx(float(result)) and "j" not in result


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("0.1 + 0.2", "0.3"),
        ("0.1 + 0.2 - 0.3", "0"),
        ("123456789012345678901.5 * 2", "246913578024691357803"),
        ("1/3", "0.3333333333"),
        ("-1/3", "-0.3333333333"),
        ("2/4", "0.5"),
        ("-7 // 2", "-4"),
        ("-7 % 3", "2"),
        ("1/100000000000", "0"),
        ("-1/100000000000", "0"),
        (".5 * 4.", "2"),
        ("384 * 27", "10368"),
    ],
)
def test_values(expression: str, result: str) -> None:
    assert calculator(expression) == result


@pytest.mark.parametrize(
    "expression",
    [
        "",
        " ",
        "9**9**9",
        "2**3",
        "__import__('os')",
        "abs(1)",
        "a",
        "1,2",
        "1 if 1 else 2",
        "1==1",
        "[1]",
        "1(2)",
        "...",
        "(" * 50 + "1" + ")" * 50,
        "9" * 300,
        "9" * 40,
        "1e9",
        "0x10",
        "1_000",
        "007",
        "1 2",
        "1;2",
        "1\n2",
        "+",
        "1//0",
        "~1",
        "1<<9",
        "1@2",
        "True",
        "'1'",
        "１+１",
        "1.5.2",
        "*".join(["999999"] * 20),
    ],
)
def test_refused(expression: str) -> None:
    assert calculator(expression).startswith("error: ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "the argument expression is missing"),
        ({"expression": 3}, "expression must be a string, not 3"),
        ({"expression": "1", "more": 1}, "there is no argument more; there are: expression"),
        ({"expression": "6*7"}, None),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], said: str | None) -> None:
    assert CALCULATOR.answer_here(arguments) == (f"error: {said}" if said else "42")


def test_no_input_takes_long() -> None:
    began = time.monotonic()
    for expression in ("-" * 199 + "1", "1" + "%7" * 99, "*".join(["99"] * 60), "1/" * 99 + "7", "(" * 20 + ")" * 20):
        assert len(calculator(expression)) < 80
    assert time.monotonic() - began < 1.0


def test_format_of_large_whole_numbers() -> None:
    assert format_value(Fraction(10**30)) == "1" + "0" * 30
    assert format_value(Fraction(10**29) + Fraction(1, 4)) == "1" + "0" * 29 + ".25"
