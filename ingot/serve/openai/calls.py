"""Streams a tool call while the model writes it: first its name, then its arguments piece by piece.

A call is the text `{"name": NAME, "arguments": OBJECT}`. As soon as the name and the beginning of the object are there,
the call is announced; from then on the object's own characters are passed on as the model wrote them, up to the brace
that closes it. A call in any other order, one with its arguments in a string, or one in Python (`NAME(x=1)`, read by
`ingot.tokens.calls` as in the terminal) is read as a whole when it has ended; what cannot be read as a call at all is given
back as text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from ingot.tokens.calls import read_call
from ingot.tokens.tokenizer import TOOL_CALL_END, TOOL_CALL_START

HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)')


@dataclass(frozen=True)
class Delta:
    """A piece of an answer. A `call` carries its name; `arguments` belong to the call announced last."""

    kind: Literal["content", "reasoning", "call", "arguments"]
    text: str


class CallStream:
    """One tool call, from the text inside its tags."""

    def __init__(self) -> None:
        self._text = ""  # not yet passed on
        self._announced = False
        self._depth, self._in_string, self._escaped = 0, False, False
        self._closed = False  # the arguments are complete

    def push(self, text: str) -> Iterator[Delta]:
        """The deltas that can be passed on now."""
        self._text += text
        if not self._announced:
            head = HEAD.match(self._text)
            name = _name(head[1]) if head else None
            if head is None or name is None:
                return
            self._announced = True
            self._text = self._text[head.end() :]
            yield Delta("call", name)
        piece, self._text = self._arguments(self._text), ""
        if piece:
            yield Delta("arguments", piece)

    def finish(self) -> Iterator[Delta]:
        """The remaining deltas when the call has ended, by its tag or by the end of the turn."""
        if self._announced:
            return
        name, arguments = _read_whole(self._text)
        if name is None:
            yield Delta("content", f"{TOOL_CALL_START}{self._text}{TOOL_CALL_END}")
        else:
            yield Delta("call", name)
            yield Delta("arguments", arguments)

    def _arguments(self, text: str) -> str:
        """The part of `text` that belongs to the object of arguments."""
        for index, character in enumerate(text):
            if self._closed:
                return text[:index]
            if self._escaped:
                self._escaped = False
            elif self._in_string:
                self._escaped = character == "\\"
                self._in_string = character != '"'
            elif character == '"':
                self._in_string = True
            elif character in "{[":
                self._depth += 1
            elif character in "}]":
                self._depth -= 1
                self._closed = self._depth == 0
        return text


def _name(quoted: str) -> str | None:
    try:
        return str(json.loads(quoted))
    except ValueError:
        return None


def _read_whole(text: str) -> tuple[str | None, str]:
    """The name and the arguments of a call in full; no name if it is none."""
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        call = read_call(text)
        return (None, "") if isinstance(call, str) else (call.name, json.dumps(call.arguments, ensure_ascii=False))
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None, ""
    arguments = value.get("arguments", value.get("parameters", {}))
    return value["name"], arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
