"""The text of a tool call, read in full: JSON (`{"name": "f", "arguments": {"x": 1}}`) or Python (`f(x=1)`).

Python is read as syntax and never run: a call of a name, whose arguments are literals given by keyword.
"""

from __future__ import annotations

import ast
import json
from typing import Any, NoReturn

from ingot.tokens.message import ToolCall
from ingot.workspace.python_source import parse_python

NOT_A_CALL = 'a tool call is not {"name": text, "arguments": mapping}'


def read_call(text: str) -> ToolCall | str:
    """The call; if it is none, what is wrong."""
    return (
        _read_json(text) if text.lstrip()[:1] in ("", "{", "[", '"') or text.strip().isdigit() else _read_python(text)
    )


def _read_json(text: str) -> ToolCall | str:
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:  # ValueError: also a number of thousands of digits
        return f"a tool call is not JSON: {error}"
    if not isinstance(value, dict) or set(value) not in ({"name", "arguments"}, {"name", "parameters"}):
        return NOT_A_CALL
    name, arguments = value["name"], value.get("arguments", value.get("parameters"))
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return NOT_A_CALL
    return ToolCall(name, arguments)


def _read_python(text: str) -> ToolCall | str:
    try:
        call = parse_python(text.strip(), "eval").body
        if not isinstance(call, ast.Call) or call.args:
            return "a tool call is not name(argument=value)"
        arguments: dict[str, Any] = {}
        for keyword in call.keywords:
            value = ast.literal_eval(keyword.value)
            arguments |= value if keyword.arg is None else {keyword.arg: value}
        arguments = json.loads(json.dumps(arguments, allow_nan=False))  # refuses what JSON does not have: sets, bytes
    # SyntaxError and MemoryError: what the parser says to a text that is no Python, or is nested too deeply.
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError) as error:
        return f"a tool call is neither JSON nor Python: {error}"
    if not isinstance(call.func, ast.Name):
        return "a tool call is not name(argument=value)"
    return ToolCall(call.func.id, arguments)


def _refuse_constant(name: str) -> NoReturn:
    """Python's reader takes NaN and Infinity, which are not JSON."""
    raise ValueError(f"{name} is not a JSON value")
