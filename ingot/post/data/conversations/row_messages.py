"""Reads the messages of a row: every key that people's files have, and the error of one that cannot be meant.

    role               system, developer, user (human), assistant (gpt, model), tool (function, observation, ipython)
    content            a text, null, or a list of parts: {"type": "text", "text": …}, also of the types reasoning and tool_call
    thinking           also reasoning_content and reasoning; or <think>…</think> at the beginning of the content
    tool_calls         [{"id", "function": {"name", "arguments"}}] or [{"name", "arguments"}]; arguments as an object or JSON text
    function_call      OpenAI's older spelling of one call
    tool_call_id       must be the id of a call before it, where calls have ids
    weight             0 or 1, on assistants: whether the turn is learnt (OpenAI)

Other keys (`name`, `id`, a time) say nothing that a model reads and are left out, as are nulls, with which Arrow fills the
missing keys of ragged rows. A key that is nearly one of these is an error: a misspelt one would lose text in silence.
"""

from __future__ import annotations

import difflib
import json
from typing import Any, NoReturn

from ingot.tokens.message import Message, Role, ToolCall
from ingot.workspace.errors import DataError

ROLES: dict[str, Role] = {
    **{"system": "system", "developer": "developer"},
    **{"user": "user", "human": "user", "prompter": "user"},
    **{"assistant": "assistant", "gpt": "assistant", "model": "assistant", "bot": "assistant", "chatgpt": "assistant"},
    **{"tool": "tool", "function": "tool", "observation": "tool", "ipython": "tool", "function_response": "tool"},
    "function_call": "assistant",
}
TRACES = ("thinking", "reasoning_content", "reasoning")
READ = ("role", "content", *TRACES, "tool_calls", "function_call", "tool_call_id", "weight")
UNREAD_CONTENT = ("images", "image", "videos", "video", "audios", "audio", "input_audio")
NEAR = 0.85  # likeness of two keys from which one is taken for a misspelling of the other
THINK, THINK_END = "<think>", "</think>"
UNCLOSED = "the thinking trace is not closed"


def read_messages(values: Any, field: str = "messages") -> tuple[list[Message], list[float]]:
    """The messages of a row and their weights; `field` is where the row has them, for errors."""
    if not isinstance(values, list):
        raise DataError(f"no list `{field}` in this row", fix='write {"messages": [{"role": …, "content": …}, …]}')
    messages, weights, known = list[Message](), list[float](), set[str]()
    for number, value in enumerate(values):
        place = f"message {number}"
        if not isinstance(value, dict) or not isinstance(value.get("role"), str):
            _refuse("not a mapping with a `role`", place, 'write {"role": "user", "content": …}')
        given = {key: found for key, found in value.items() if found is not None}
        _check_keys(given, place)
        messages.append(_message(given, place))
        weights.append(_weight(given, place))
        known |= {str(call["id"]) for call in given.get("tool_calls") or () if isinstance(call, dict) and "id" in call}
        if known and "tool_call_id" in given and str(given["tool_call_id"]) not in known:
            _refuse(
                f"answers the call {given['tool_call_id']!r}, which nothing before it made", place, "look at the ids"
            )
    return messages, weights


def split_trace(text: str) -> tuple[str | None, str, list[str]]:
    """The trace at the beginning of a text, what follows it, and what is wrong with it."""
    begun = text.lstrip()
    if not begun.startswith(THINK):
        return None, text, []
    trace, closed, rest = begun.removeprefix(THINK).partition(THINK_END)
    return trace.strip("\n"), rest.lstrip("\n"), [] if closed else [UNCLOSED]


def read_call(value: Any, place: str) -> ToolCall:
    """A call in any of its spellings."""
    if isinstance(value, str):
        value = parse_json(value, place, "a tool call")
    inner = value.get("function", value) if isinstance(value, dict) else None
    if not isinstance(inner, dict) or not isinstance(inner.get("name"), str):
        _refuse("a tool call without a name", place, 'write {"name": …, "arguments": {…}}')
    arguments = inner.get("arguments")
    if isinstance(arguments, str):
        arguments = parse_json(arguments or "{}", place, f"the arguments of {inner['name']}")
    elif isinstance(arguments, dict):  # in a text a null was written by somebody; here Arrow may have filled it in
        arguments = {key: found for key, found in arguments.items() if found is not None}
    if not isinstance(arguments, dict):
        _refuse(f"the arguments of {inner['name']} are not an object", place, 'write "arguments": {"name": value}')
    return ToolCall(inner["name"], arguments)


def parse_json(text: str, place: str, what: str) -> Any:
    """JSON inside a text of a row."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{what}: not JSON: {error}", place=place, fix="write an object, or a text of JSON") from error


def _message(given: dict[str, Any], place: str) -> Message:
    role = ROLES.get(given["role"])
    if role is None:
        _refuse(f"unknown role {given['role']!r}", place, f"use one of {', '.join(ROLES)}")
    content, trace, calls = _content(given.get("content", ""), place)
    traces = [given[name] for name in TRACES if name in given]
    if not all(isinstance(each, str) for each in traces):
        _refuse("the thinking trace is not a text", place, "write a string")
    listed = given.get("tool_calls") or []
    if not isinstance(listed, list):
        _refuse("`tool_calls` is not a list of calls", place, 'write [{"name": …, "arguments": {…}}]')
    if "function_call" in given:
        listed = [given["function_call"], *listed]
    calls += [read_call(call, place) for call in listed]
    problems = list[str]()
    trace = traces[0] if traces else trace
    if role == "assistant" and trace is None:
        trace, content, problems = split_trace(content)
    return Message(role, content, trace, calls, problems)


def _content(value: Any, place: str) -> tuple[str, str | None, list[ToolCall]]:
    """The text, the trace and the calls of a message's content."""
    if isinstance(value, str):
        return value, None, []
    if not isinstance(value, list):
        _refuse("`content` is neither a text nor a list of parts", place, "write a string")
    texts, traces, calls = list[str](), list[str](), list[ToolCall]()
    for part in value:
        kind = "text" if isinstance(part, str) else part.get("type") if isinstance(part, dict) else None
        inside = part if isinstance(part, str) else _inside(part)
        if kind in ("tool_call", "tool_use", "function_call"):
            calls.append(read_call(inside if inside is not None else part, place))
        elif kind in ("text", "input_text", "output_text") and isinstance(inside, str):
            texts.append(inside)
        elif kind in TRACES and isinstance(inside, str):
            traces.append(inside)
        else:
            _refuse(
                f"a part of the content is of the type {kind!r}", place, "only text, reasoning and calls are learnt"
            )
    return "".join(texts), "".join(traces) if traces else None, calls


def _inside(part: Any) -> Any:
    if not isinstance(part, dict):
        return None
    return next((part[name] for name in ("text", "value", "content", *TRACES) if part.get(name) is not None), None)


def _weight(given: dict[str, Any], place: str) -> float:
    weight = given.get("weight", 1)
    if weight not in (0, 1):
        _refuse(
            f"`weight` is {weight!r}", place, "write 0 (not learnt) or 1; a file's own weight is `weight` of `files`"
        )
    return float(weight)


def _check_keys(given: dict[str, Any], place: str) -> None:
    for name in given:
        if name in UNREAD_CONTENT and given[name]:
            _refuse(f"`{name}`: only text is learnt", place, "leave the row out, or the key")
        if name not in READ and (near := difflib.get_close_matches(name, READ, 1, NEAR)):
            _refuse(f"unknown part {name!r}", place, f"did you mean {near[0]}?")


def _refuse(problem: str, place: str, fix: str) -> NoReturn:
    raise DataError(problem, place=place, fix=fix)
