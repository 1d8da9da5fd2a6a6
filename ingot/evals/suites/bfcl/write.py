"""From calls to the text that apis.py runs: `cd(folder='document')`.

The leaderboard writes calls so before it runs them, and so do these functions, oddities included: a mapping whose values are all
mappings, given as an argument, is a call of its first key (`decode` reads a call inside a call as such a mapping); keys of other
mappings become texts; an empty mapping cannot be written, and then the answer is no call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ingot.evals.suites.bfcl.decode import NoCall, decode
from ingot.tokens.chat import Message


def text_calls(message: Message) -> list[str]:
    """The calls that the text of an answer is; none if it is anything else."""
    try:
        return [f"{call.name}({_arguments(call.arguments)})" for call in decode(message.content)]
    except NoCall:
        return []


def tool_calls(message: Message) -> list[str]:
    """The tool calls of an answer."""
    return [
        f"{call.name}({','.join(f'{name}={value!r}' for name, value in call.arguments.items())})"
        for call in message.tool_calls
    ]


def _arguments(arguments: Mapping[Any, Any]) -> str:
    return ", ".join(f"{name}={_value(value)}" for name, value in arguments.items())


def _value(value: Any) -> str:
    if not isinstance(value, dict):
        return repr(value)
    if not value:
        raise NoCall("an empty mapping as an argument")
    if all(isinstance(each, dict) for each in value.values()):
        name = next(iter(value))
        return f"{name}({_arguments(value[name])})"
    return "{" + ", ".join(f"'{key}': {_value(each)}" for key, each in value.items()) + "}"
