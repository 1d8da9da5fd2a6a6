"""From a model's text to function calls: `[weather(city="Oslo", days=2), time()]`, read as Python and never run.

What the leaderboard's decoder does is done here, its oddities included, because a score depends on them: fences, blanks and
missing brackets at the ends are forgiven; positional arguments are dropped; a name stands for itself as text; a sign before a
number, whichever, is a minus. One thing differs: the leaderboard evaluates an expression such as `3 * 4` with Python's
`eval`. Here only arithmetic on constants is worked out, and anything else in an expression is no call.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ingot.workspace.python_source import parse_python

OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
LARGEST = 1000  # base and exponent of a power: a larger one takes long to work out


class NoCall(Exception):
    """A text that is no list of calls."""


@dataclass(frozen=True)
class DecodedCall:
    """A call: the function's name, and its arguments by name."""

    name: str
    arguments: dict[Any, Any]


def decode(text: str) -> list[DecodedCall]:
    """The calls of a text; NoCall if it is anything else."""
    text = text.strip("`\n ")
    text = text if text.startswith("[") else f"[{text}"
    text = text if text.endswith("]") else f"{text}]"
    try:
        body = parse_python(text.strip().strip("'"), "eval").body
        if isinstance(body, ast.Call):
            return [_call(body)]
        if not isinstance(body, ast.List | ast.Tuple):
            raise NoCall("neither a call nor a list")
        return [_call(each) for each in body.elts]
    except (SyntaxError, ValueError, TypeError, ArithmeticError, RecursionError, MemoryError) as error:
        raise NoCall(str(error)) from error


def _call(node: ast.expr) -> DecodedCall:
    if not isinstance(node, ast.Call):
        raise NoCall("a list with something else than calls")
    parts: list[str] = []
    function = node.func
    while isinstance(function, ast.Attribute):
        parts.append(function.attr)
        function = function.value
    if isinstance(function, ast.Name):
        parts.append(function.id)
    return DecodedCall(".".join(reversed(parts)), {each.arg: _value(each.value) for each in node.keywords})


def _value(node: ast.expr | None) -> Any:
    match node:
        case ast.Constant():
            return "..." if node.value is Ellipsis else node.value
        case ast.UnaryOp(operand=ast.Constant(value=value)):
            return -value  # type: ignore[operator]
        case ast.List():
            return [_value(each) for each in node.elts]
        case ast.Tuple():
            return tuple(_value(each) for each in node.elts)
        case ast.Dict():
            return {_value(key): _value(value) for key, value in zip(node.keys, node.values, strict=True)}
        case ast.BinOp():
            return _arithmetic(node)
        case ast.Name():
            return node.id
        case ast.Call() if node.keywords:
            call = _call(node)
            return {call.name: call.arguments}
        case ast.Call():
            return ast.unparse(node)
        case ast.Subscript():
            return f"{ast.unparse(node.value)}[{ast.unparse(node.slice)}]"
    raise NoCall("an expression that is not a value")


def _arithmetic(node: ast.expr) -> Any:
    """The value of an expression of constants."""
    match node:
        case ast.Constant():
            return node.value
        case ast.UnaryOp(op=ast.USub()):
            return -_arithmetic(node.operand)
        case ast.UnaryOp(op=ast.UAdd()):
            return +_arithmetic(node.operand)
        case ast.List() | ast.Tuple():
            values = [_arithmetic(each) for each in node.elts]
            return values if isinstance(node, ast.List) else tuple(values)
        case ast.BinOp() if type(node.op) in OPERATORS:
            left, right = _arithmetic(node.left), _arithmetic(node.right)
            numbers = all(isinstance(each, int | float) for each in (left, right))
            if not numbers and not isinstance(node.op, ast.Add):
                raise NoCall("arithmetic on something else than numbers")
            if isinstance(node.op, ast.Pow) and max(abs(left), abs(right)) > LARGEST:
                raise NoCall("a power that is too large")
            return OPERATORS[type(node.op)](left, right)
    raise NoCall("an expression with more than constants")
