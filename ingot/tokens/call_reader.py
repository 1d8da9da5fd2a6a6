"""Reads the tool calls of a turn while they are written: the name of a call first, then its arguments as JSON, piece by piece.

A call ends in one of these ways, and what was written is kept whatever happens:

| outcome | what was read |
|---|---|
| `complete` | a call |
| `missing_end` | a call, but the mark of its end did not come |
| `unknown_tool` | a call of a tool that was not offered |
| `malformed` | no name, or arguments that are not JSON |
| `truncated` | the turn ended inside |
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ingot.tokens.call_bodies import BareKeyBody, JsonBody, Quotes, TaggedBody, argument_types
from ingot.tokens.calls import read_arguments, read_call, read_calls
from ingot.tokens.message import ToolCall
from ingot.tokens.syntax import State, Syntax

Status = Literal["complete", "missing_end", "unknown_tool", "malformed", "truncated"]
Section = Literal["content", "thinking", "call", "arguments"]
HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)')


@dataclass(frozen=True)
class CallOutcome:
    """How a call ended: with the call if it could be read, and with all that was written for it."""

    status: Status
    written: str
    call: ToolCall | None = None
    problem: str | None = None


@dataclass(frozen=True)
class TurnPart:
    """Some text of a turn. A `call` is the name with which a call begins, `arguments` are JSON and belong to that call.

    `ends`: the trace or the call is over; a call then has its `outcome`.
    """

    section: Section
    text: str
    ends: bool = False
    outcome: CallOutcome | None = None


class CallReader:
    """The calls of one section. `state` is what the next text is; whoever reads the marks calls `mark` with where they lead."""

    def __init__(self, syntax: Syntax, state: State, tools: Sequence[Mapping[str, Any]] | None, written: str) -> None:
        self._syntax = syntax
        self._tools = None if tools is None else {each["name"]: each for each in map(_declared, tools)}
        self._made = 0
        self.problems: list[str] = []
        self._begin(state, written)

    def _begin(self, state: State, written: str) -> None:
        self.state = state
        self._written = written
        self._name: str | None = None
        self._text = ""  # of the name, or of a whole call, or between calls
        self._json = ""
        self._quotes = Quotes()
        self._body: JsonBody | TaggedBody | BareKeyBody | None = None
        self._announced = False

    @property
    def in_string(self) -> bool:
        """Whether a mark that is spelt in text is part of a quoted string."""
        if self.state in ("call", "list"):
            return bool(self._quotes.open)
        return self.state == "arguments" and isinstance(self._body, JsonBody) and self._body.in_string

    @property
    def unsure(self) -> State | None:
        """The value that has ended, as it seems: any text but blanks means that it was not over."""
        return self._body.ended if self.state == "arguments" and isinstance(self._body, TaggedBody) else None

    def text(self, text: str) -> Iterator[TurnPart]:
        """The parts that more text adds."""
        self._written += text
        body = self._body
        if self.state in ("calls", "name"):
            self._text += text
        elif self.state in ("call", "list"):
            yield from self._whole(text)
        elif isinstance(body, TaggedBody):
            yield from self._tagged(body, text)
        elif isinstance(body, BareKeyBody):
            yield from self._emit(body.string(text) if self.state == "string" else body.push(text))
        elif isinstance(body, JsonBody) and self.state == "arguments":
            yield from self._emit(body.push(text))

    def mark(self, mark: str, to: State) -> Iterator[TurnPart]:
        """The parts that a mark adds which leads to another part of a call, or between calls."""
        self._written += mark
        before, self.state = self.state, to
        body = self._body
        if before == "calls":
            yield from self._between()
            self._begin(to, self._written)
        elif before == "name" and to not in ("calls", "name"):
            yield from self.named(self._text)
        elif isinstance(body, TaggedBody):
            if before in ("value", "text", "json"):
                body.end(mark)
            else:
                yield from self._emit(body.close() if before == "arguments" else "")
                if to in ("value", "text", "json"):
                    body.begin(to)
        elif isinstance(body, BareKeyBody):
            yield from self._emit(body.quote())
        if to == "calls":
            self.state = before
            yield from self.finish(None)
            self._begin("calls", "")
        elif to == "name" and before == "arguments":  # no mark ends a call: that of the next one does
            self.state = before
            self._written = self._written.removesuffix(mark)
            yield from self.finish(None)
            self._begin("name", mark)

    def named(self, text: str) -> Iterator[TurnPart]:
        """The name is complete: the call is announced, and its arguments follow."""
        found = re.fullmatch(self._syntax.name, text, re.DOTALL)
        self._name, self._text = (found[1] if found else text).strip(), ""
        self.state = "arguments" if self.state == "name" else self.state
        if self._syntax.marks("key"):
            self._body = TaggedBody(argument_types((self._tools or {}).get(self._name)), self._syntax.padding)
        else:
            self._body = BareKeyBody() if self._syntax.marks("string") else JsonBody()
        if self._name:
            yield self._announce(self._name)

    def finish(self, missing: str | None, mark: str = "") -> Iterator[TurnPart]:
        """The last parts, when `mark` or the turn's end has ended the section. `missing`: the mark that should have come."""
        self._written += mark
        if self.state == "calls":
            yield from self._between()
            if not self._made:
                yield self._end(self._read_status(missing), None, "a tool call has no name")
        elif self.state in ("call", "list"):
            yield from self._finish_whole(missing)
        elif self._name is None and self.state == "name" and missing is None:
            yield from self.named(self._text)
            yield from self._finish_arguments(missing)
        elif not self._name:
            yield self._end(self._read_status(missing), None, "a tool call has no name")
        else:
            yield from self._finish_arguments(missing)

    def _between(self) -> Iterator[TurnPart]:
        """Text between calls is no part of a call, but never lost."""
        stray, self._text = self._text.strip(), ""
        if stray:
            self.problems.append("text between tool calls")
            yield TurnPart("content", stray)

    def _tagged(self, body: TaggedBody, text: str) -> Iterator[TurnPart]:
        if self.state == "key":
            body.key(text)
        elif self.state == "arguments":
            value = body.go_on() if text.strip() else None
            if value is None:
                body.blank(text)
            elif text in self._syntax.marks(value):  # its mark, once more
                body.end(text)
            else:
                self.state = value
                yield from self._emit(body.value(text))
        else:
            yield from self._emit(body.value(text))

    def _whole(self, text: str) -> Iterator[TurnPart]:
        """A call in one piece: announced as soon as its name and the beginning of its arguments are there."""
        if not self._text.strip():
            python = self.state == "list" or text.lstrip()[:1].isidentifier()
            self._quotes = Quotes("\"'" if python else '"')
        self._text += text
        self._quotes.push(text)
        if self.state == "list":
            return
        if not self._announced:
            head = HEAD.match(self._text)
            name = _unquoted(head[1]) if head else None
            if head is None or name is None:
                return
            self._body = JsonBody()
            yield self._announce(name)
            text = self._text[head.end() :]
        if isinstance(self._body, JsonBody):
            yield from self._emit(self._body.push(text))

    def _finish_whole(self, missing: str | None) -> Iterator[TurnPart]:
        found: list[ToolCall] | ToolCall | str = (
            read_calls(self._text) if self.state == "list" else read_call(self._text)
        )
        if isinstance(found, str):
            yield self._end(self._read_status(missing), None, found)
        elif isinstance(found, ToolCall) and self._announced:
            yield self._end("complete", found, None, missing)
        else:
            for call in found if isinstance(found, list) else [found]:
                yield self._announce(call.name)
                yield from self._emit(json.dumps(call.arguments, ensure_ascii=False))
                yield self._end("complete", call, None, missing)

    def _finish_arguments(self, missing: str | None) -> Iterator[TurnPart]:
        body = self._body
        assert body is not None and self._name is not None
        if isinstance(body, TaggedBody) and (self.state == "key" or body.in_value):
            yield self._end(self._read_status(missing or "a value"), None, f"an argument of {self._name} is cut off")
            return
        if isinstance(body, TaggedBody):
            yield from self._emit(body.close())
        yield from self._emit(body.finish())
        arguments = read_arguments(self._json.strip())
        if not self._json.strip():
            yield from self._emit("{}")
        if isinstance(arguments, str):
            yield self._end(self._read_status(missing), None, arguments)
            return
        if isinstance(body, JsonBody) and body.tail.strip(" \n\t`"):
            self.problems.append("text after the arguments of a tool call")
        if isinstance(body, TaggedBody) and body.loose.strip() and self._json.strip() != body.loose.strip():
            self.problems.append("text between the arguments of a tool call")
        yield self._end("complete", ToolCall(self._name, arguments), None, missing)

    def _read_status(self, missing: str | None) -> Status:
        """Of a call that cannot be read."""
        return "malformed" if missing is None else "truncated"

    def _end(self, status: Status, call: ToolCall | None, problem: str | None, missing: str | None = None) -> TurnPart:
        if call is not None and missing:
            status = "missing_end"
        elif call is not None and self._tools is not None and call.name not in self._tools:
            status = "unknown_tool"
        self._made += 1
        return TurnPart(
            "arguments" if self._announced else "call", "", True, CallOutcome(status, self._written, call, problem)
        )

    def _announce(self, name: str) -> TurnPart:
        self._announced, self._json = True, ""
        return TurnPart("call", name)

    def _emit(self, piece: str) -> Iterator[TurnPart]:
        self._json += piece
        if piece:
            yield TurnPart("arguments", piece)


def _declared(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    found = tool.get("function", tool)
    return found if isinstance(found, Mapping) else tool


def _unquoted(quoted: str) -> str | None:
    try:
        return str(json.loads(quoted))
    except ValueError:
        return None
