"""Converts messages to the shape of OpenAI's API and back, for servers that are asked and for files.

    {"role": "assistant", "content": …, "reasoning_content": …, "tool_calls": [{"id", "type": "function",
     "function": {"name", "arguments": JSON as text}}]}
    {"role": "tool", "tool_call_id": …, "content": …}

Ours have no ids: results answer the calls before them in order. Ids are numbered when they are written, dropped when read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ingot.tokens.message import ROLES, Message, ToolCall
from ingot.workspace.errors import DataError


def to_openai(messages: Sequence[Message], *, thinking: bool = True) -> list[dict[str, Any]]:
    """The messages as OpenAI's API takes them; a trace of thinking is `reasoning_content`, where `thinking` is to be sent."""
    values: list[dict[str, Any]] = []
    calls = answers = 0  # the numbers of the next call and of the next answer to one
    for message in messages:
        value: dict[str, Any] = {"role": message.role, "content": message.content}
        if thinking and message.thinking is not None:
            value["reasoning_content"] = message.thinking
        if message.tool_calls:
            value["tool_calls"] = [_call(call, calls + index) for index, call in enumerate(message.tool_calls)]
            answers, calls = calls, calls + len(message.tool_calls)
        if message.role == "tool":
            value["tool_call_id"] = f"call_{answers}"
            answers += 1
        values.append(value)
    return values


def _call(call: ToolCall, number: int) -> dict[str, Any]:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    return {"id": f"call_{number}", "type": "function", "function": {"name": call.name, "arguments": arguments}}


def from_openai(values: Any, place: str) -> list[Message]:
    """The inverse, for messages from a file: a list of them, or an object that holds it as `messages`."""
    if isinstance(values, dict):
        values = values.get("messages")
    if not isinstance(values, list):
        raise DataError("no list of messages", place=place, fix='write {"messages": [{"role": …, "content": …}, …]}')
    return [_message(value, f"{place}, message {number}") for number, value in enumerate(values)]


def _message(value: Any, place: str) -> Message:
    if not isinstance(value, dict) or value.get("role") not in ROLES:
        raise DataError("a message without a known role", place=place, fix=f"give it one of {', '.join(ROLES)}")
    content, thinking = value.get("content"), value.get("reasoning_content", value.get("thinking"))
    if isinstance(content, list):  # OpenAI's parts
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    if not isinstance(content, str | None) or not isinstance(thinking, str | None):
        raise DataError("the content of a message is not text", place=place, fix="write it as a string")
    calls = value.get("tool_calls") or []
    return Message(value["role"], content or "", thinking, [read_call(call, place) for call in calls])


def read_call(value: Any, place: str) -> ToolCall:
    """A tool call of OpenAI's shape; its arguments may be JSON as text or the mapping itself."""
    try:
        function = value.get("function", value)
        name, arguments = function["name"], function["arguments"]
        arguments = json.loads(arguments or "{}") if isinstance(arguments, str) else arguments
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise DataError(f"a tool call cannot be read: {error}", place=place) from None
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise DataError("a tool call without a name and a mapping of arguments", place=place)
    return ToolCall(name, arguments)


def from_reply(row: Mapping[str, Any], *, thinking: bool) -> Message:
    """What a server has answered, whatever it is: a call whose arguments are no JSON object keeps them under `arguments`."""
    calls = [each.get("function", {}) for each in row.get("tool_calls") or ()]
    thought = row.get("reasoning_content") or row.get("reasoning")
    return Message(
        "assistant",
        str(row.get("content") or ""),
        str(thought or "") if thinking else None,
        [ToolCall(str(call.get("name")), _arguments(call.get("arguments"))) for call in calls],
    )


def _arguments(text: Any) -> dict[str, Any]:
    try:
        value = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"arguments": text}
