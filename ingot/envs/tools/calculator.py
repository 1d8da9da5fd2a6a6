"""The calculator tool: exact arithmetic on an expression, and nothing else.

The expression is parsed to a syntax tree and walked; only numbers, + - * / // %, unary signs and parentheses exist.
There is no power, no name and no call, and length, depth and magnitude are bounded before any work is done, so that no
input can take long or leave the tool. Whatever is wrong comes back as the text "error: …", which the model can read.
"""

from __future__ import annotations

import ast
import re
from fractions import Fraction
from typing import Any

from ingot.envs.tools.tool import make_tool
from ingot.workspace.python_source import parse_python

NAME = "calculator"
# every task's prompt carries this text: short, because a small model reads it again and again
SCHEMA: dict[str, Any] = {
    "name": NAME,
    "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}},
}
LENGTH_LIMIT = 200
DEPTH_LIMIT = 20
MAGNITUDE_LIMIT = 10**30
DECIMAL_DIGITS = 10
ALLOWED = re.compile(r"[0-9+\-*/%(). ]*", re.ASCII)


class CalculatorError(ValueError):
    """Why an expression has no value here."""


def calculator(expression: str) -> str:
    """The exact value of an expression as text, or "error: …"."""
    try:
        return format_value(evaluate(expression))
    except CalculatorError as error:
        return f"error: {error}"


def evaluate(expression: str) -> Fraction:
    """The exact value of an expression; CalculatorError if it has none."""
    if len(expression) > LENGTH_LIMIT:
        raise CalculatorError(f"longer than {LENGTH_LIMIT} characters")
    if not ALLOWED.fullmatch(expression):
        raise CalculatorError("only numbers, + - * / // % and parentheses")
    if expression.count("(") > DEPTH_LIMIT or not expression.strip():
        raise CalculatorError("empty or nested too deeply")
    try:
        tree = parse_python(expression.strip(), "eval")
    except SyntaxError:
        raise CalculatorError("not an expression") from None
    return _value(tree.body, expression.strip())


def format_value(value: Fraction) -> str:
    """Whole numbers without a point, others rounded to ten decimals."""
    if value.denominator == 1:
        return str(value.numerator)
    scaled = round(abs(value) * 10**DECIMAL_DIGITS)  # by integers: Decimal would round at its 28 digits
    whole, decimals = divmod(scaled, 10**DECIMAL_DIGITS)
    text = f"{whole}.{decimals:0{DECIMAL_DIGITS}d}".rstrip("0").rstrip(".")
    return f"-{text}" if value < 0 and scaled else text


def _value(node: ast.expr, source: str) -> Fraction:
    match node:
        case ast.Constant(value=int() | float()):
            # the written digits, not the rounded float: 0.1 + 0.2 is 0.3
            result = Fraction(source[node.col_offset : node.end_col_offset])
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            result = -_value(operand, source)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            result = _value(operand, source)
        case ast.BinOp(left=left, op=operator, right=right):
            result = _apply(operator, _value(left, source), _value(right, source))
        case _:
            raise CalculatorError("only numbers, + - * / // % and parentheses")
    if abs(result) > MAGNITUDE_LIMIT or result.denominator > MAGNITUDE_LIMIT:
        raise CalculatorError("too large")
    return result


def _apply(operator: ast.operator, left: Fraction, right: Fraction) -> Fraction:
    match operator:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.Div() | ast.FloorDiv() | ast.Mod() if right == 0:
            raise CalculatorError("division by zero")
        case ast.Div():
            return left / right
        case ast.FloorDiv():
            return Fraction(left // right)
        case ast.Mod():
            return left % right
        case _:
            raise CalculatorError("only + - * / // %")


CALCULATOR = make_tool(calculator, schema=SCHEMA, asks=False, here=True)
