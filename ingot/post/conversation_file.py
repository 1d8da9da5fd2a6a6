"""Conversations from JSONL files: {"messages": [{"role", "content", "thinking", "tool_calls"}], "tools": […], "thinking": true}.

A row that does not say `thinking`, and has no trace in a message, is learnt in both modes, so that it is answered whichever mode
a chat is in: with an empty trace, as a model writes it that always opens one, and in the mode without thinking.

Everything is checked before it is rendered: a template prints a list or a number as readily as a text, and a model would
learn it. What is wrong is an error that names the file and the line.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from ingot.post.conversations import as_sequence
from ingot.tokens.batch import TokenSequence
from ingot.tokens.chat import ChatFormat, Message
from ingot.workspace.errors import DataError

PARTS = ("role", "content", "thinking", "tool_calls")


def file_conversations(path: Path, chat: ChatFormat, longest: int | None = None) -> list[TokenSequence]:
    """Every conversation of a file as training sequences of at most `longest` tokens: one, or one for each mode of thinking."""
    if not path.is_file():
        raise DataError("there is no such file", place=str(path), fix="look at `files` of the sft stage")
    sequences = []
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            tools, modes = _read_row(line)
            made = [as_sequence(chat, messages, tools, thinking, longest) for thinking, messages in modes.items()]
            sequences += made[:1] if made[0] == made[-1] else made  # a template without modes renders both alike
        except DataError as error:
            place = f"{path}:{number}" + (f", {error.place}" if error.place else "")
            raise DataError(error.problem, place=place, fix=error.fix) from error
    return sequences


def _read_row(line: bytes) -> tuple[list[dict[str, Any]], dict[bool, list[Message]]]:
    """The tools, and the messages by the modes of thinking in which the conversation is learnt."""
    try:
        row = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8: {error.reason} at byte {error.start} of the line") from error
    except json.JSONDecodeError as error:
        raise DataError(f"not JSON: {error}", fix="write one JSON object a line") from error
    if not isinstance(row, dict) or not isinstance(row.get("messages"), list):
        raise DataError("no list `messages` in this row", fix='write {"messages": [{"role": …, "content": …}, …]}')
    tools, thinking = row.get("tools") or [], row.get("thinking")
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise DataError("`tools` is not a list of tool schemas", fix='write "tools": [{"name": …, "parameters": …}]')
    if not isinstance(thinking, bool | None):
        raise DataError(f"`thinking` of the row is {thinking!r}", fix="write true or false, or leave it out")
    messages = [_read_message(message, number) for number, message in enumerate(row["messages"])]
    if thinking is not None or any(message.thinking is not None for message in messages):
        return tools, {thinking is not False: messages}
    opened = [replace(each, thinking="") if each.role == "assistant" else each for each in messages]
    return tools, {True: opened, False: messages}


def _read_message(value: Any, number: int) -> Message:
    place = f"message {number}"
    if not isinstance(value, dict) or "role" not in value:
        raise DataError("not a mapping with a `role`", place=place, fix='write {"role": "user", "content": …}')
    if unknown := [name for name in value if name not in PARTS]:
        raise DataError(f"unknown part {unknown[0]!r}", place=place, fix=f"a message has {', '.join(PARTS)}")
    for name in ("content", "thinking"):
        if not isinstance(value.get(name), str | None):
            raise DataError(f"`{name}` is not a text", place=place, fix="write a string")
    calls = value.get("tool_calls") or []
    if not isinstance(calls, list) or not all(_is_call(call) for call in calls):
        raise DataError(
            "`tool_calls` is not a list of calls",
            place=place,
            fix='write "tool_calls": [{"name": …, "arguments": {…}}], the arguments as an object and not as a text',
        )
    return Message.from_dict(value)


def _is_call(call: Any) -> bool:
    inner = call.get("function", call) if isinstance(call, dict) else None
    return isinstance(inner, dict) and isinstance(inner.get("name"), str) and isinstance(inner.get("arguments"), dict)
