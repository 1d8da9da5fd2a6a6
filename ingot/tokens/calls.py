"""The text of tool calls, read in full: JSON (`{"name": "f", "arguments": {"x": 1}}`) or Python (`f(x=1)`), one or several.

Python is read as syntax and never run: a call of a name, whose arguments are literals given by keyword; `true`, `false` and
`null` are literals too, as OLMo 3 writes them.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from typing import Any, NoReturn

from ingot.tokens.message import ToolCall
from ingot.workspace.python_source import parse_python

NOT_A_CALL = 'a tool call is not {"name": text, "arguments": mapping}'
NOT_PYTHON = "a tool call is not name(argument=value)"
JSON_NAMES = {"true": True, "false": False, "null": None}


def read_call(text: str) -> ToolCall | str:
    """The call; if it is none, what is wrong."""
    if text.lstrip()[:1] in ("", "{", "[", '"') or text.strip().isdigit():
        value = read_json(text)
        return f"a tool call is not JSON: {value}" if isinstance(value, ValueError) else _call_of(value)
    calls = _read_python(text)
    if isinstance(calls, str):
        return calls
    return calls[0] if len(calls) == 1 else NOT_PYTHON


def read_calls(text: str) -> list[ToolCall] | str:
    """Several calls: a JSON list of them, a Python list of them, or one in Python on each line."""
    if text.lstrip(" \n[")[:1] == "{":
        value = read_json(text)
        if isinstance(value, ValueError):
            return f"tool calls are not JSON: {value}"
        found = [_call_of(each) for each in (value if isinstance(value, list) else [value])]
        wrong = next((each for each in found if isinstance(each, str)), None)
        return wrong or [each for each in found if isinstance(each, ToolCall)]
    calls = _read_python(text)
    return NOT_PYTHON if calls == [] else calls


def read_arguments(text: str) -> dict[str, Any] | str:
    """The arguments of a call, JSON in full; if they are none, what is wrong."""
    value = read_json(text or "{}")
    if isinstance(value, ValueError):
        return f"the arguments of a tool call are not JSON: {value}"
    return value if isinstance(value, dict) else "the arguments of a tool call are no JSON object"


def read_json(text: str) -> Any:
    """The value, or the error that says why there is none."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except ValueError as error:  # also a number of thousands of digits
        return error
    except RecursionError:
        return ValueError("nested too deeply")


def _call_of(value: Any) -> ToolCall | str:
    if not isinstance(value, dict):
        return NOT_A_CALL
    name, arguments = value.get("name"), value.get("arguments", value.get("parameters"))
    if isinstance(arguments, str):  # JSON inside JSON, as some models write
        arguments = read_json(arguments)
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return NOT_A_CALL
    return ToolCall(name, arguments)


def _read_python(text: str) -> list[ToolCall] | str:
    try:
        made = [_python_call(call) for call in _python_calls(text)]
    # SyntaxError and MemoryError: what the parser says to a text that is no Python, or is nested too deeply.
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        return f"a tool call is neither JSON nor Python: {error}"
    return NOT_PYTHON if any(call is None for call in made) else [call for call in made if call is not None]


def _python_calls(text: str) -> Iterator[ast.expr]:
    """The expressions of a list, or of each line."""
    for statement in parse_python(text.strip()).body:
        if not isinstance(statement, ast.Expr):
            raise ValueError("a statement")
        value = statement.value
        yield from value.elts if isinstance(value, ast.List | ast.Tuple) else [value]


def _python_call(call: ast.expr) -> ToolCall | None:
    if not isinstance(call, ast.Call) or call.args or not isinstance(call.func, ast.Name):
        return None
    arguments: dict[str, Any] = {}
    for keyword in call.keywords:
        value = ast.literal_eval(_JsonNames().visit(keyword.value))
        arguments |= value if keyword.arg is None else {keyword.arg: value}
    refused = json.dumps(arguments, allow_nan=False)  # what JSON does not have: sets, bytes
    return ToolCall(call.func.id, json.loads(refused))


class _JsonNames(ast.NodeTransformer):
    """`true` is True, as in JSON."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(JSON_NAMES[node.id]) if node.id in JSON_NAMES else node


def _refuse_constant(name: str) -> NoReturn:
    """Python's reader takes NaN and Infinity, which are not JSON."""
    raise ValueError(f"{name} is not a JSON value")
