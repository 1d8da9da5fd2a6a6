"""Reads an assistant turn while it is written: which text is trace, which is answer, which is a tool call.

`parse` (ingot/tokens/chat.py), the terminal chat and the server read turns with it, so a streamed turn and a whole one mean the
same. A call comes as the text `{"name": …, "arguments": …}` in every syntax; in harmony its head is put together from the
recipient. Whatever a model writes is read: what is out of order is named in `problems`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from ingot.tokens.scan import Broken, Mark, Scanner, Text
from ingot.tokens.syntax import CHANNEL, CHANNEL_ENDS, MESSAGE, PYTHON_TAG, START, Syntax
from ingot.tokens.tokenizer import Tokenizer

Section = Literal["content", "thinking", "call"]
PART_NAMES: dict[Section, str] = {"content": "content", "thinking": "thinking", "call": "tool call"}
RECIPIENT = re.compile(r"\bto=(?:functions\.)?(\S+)")
BARE_CALL = re.compile(r'\s*\{\s*"name"\s*:')
BARE_BEGINNING = re.compile(r'\s*(\{\s*("n?a?m?e?"?\s*)?)?')


@dataclass(frozen=True)
class Part:
    """Some text of a section; `ends`: the section is over."""

    section: Section
    text: str
    ends: bool = False


class TurnReader:
    """One turn. `in_thinking`: the prompt opened its trace; `calls`: whether calls that are spelt as plain text count."""

    def __init__(self, tokenizer: Tokenizer, syntax: Syntax, *, in_thinking: bool = False, calls: bool = True) -> None:
        self.problems: list[str] = []
        self.section: Section = "thinking" if in_thinking else "content"
        self.foreign = 0  # characters that were no content
        self._syntax = syntax
        spelt = calls or not syntax.call
        self._scanner = Scanner(tokenizer, [mark for mark in syntax.marks if spelt or mark not in (syntax.call or ())])
        self._strays: dict[Section, list[str]] = {}
        self._traces = int(in_thinking)
        self._answered = False
        self._calls = 0
        self._header: str | None = "" if syntax.channels and not in_thinking else None
        self._undecided: str | None = "" if syntax.bare and calls else None  # may be a bare call

    @property
    def start(self) -> int:
        """The character of the content with which the token that came last begins."""
        return self._scanner.start - self.foreign

    def push(self, token: int) -> Iterator[Part]:
        """The parts that `token` adds."""
        for event in self._scanner.push(token):
            yield from self._event(event)

    def read(self, tokens: Sequence[int]) -> Iterator[Part]:
        """The parts of a whole turn."""
        for event in self._scanner.push_all(tokens):
            yield from self._event(event)
        yield from self.finish()

    def finish(self) -> Iterator[Part]:
        """The parts that were held back, at the end of the turn."""
        for event in self._scanner.finish():
            yield from self._event(event)
        if self._undecided:
            yield from self._decided("content")
        if self.section == "call" and self._syntax.bare:
            yield Part("call", "", ends=True)
            self.section = "content"
        elif self.section != "content":
            yield from self._end()
            tags = self._syntax.call if self.section == "call" else self._syntax.think
            self.problems.append(f"{tags[1] if tags else 'the end of the message'} is missing")
        elif self._header:
            self.problems.append(f"no {MESSAGE} after {self._header.strip()!r}")
        for section, names in self._strays.items():
            self.problems.append(f"stray {', '.join(names)} in the {PART_NAMES[section]}")

    def _event(self, event: Text | Mark | Broken) -> Iterator[Part]:
        if isinstance(event, Broken):
            self.problems.append(f"the {PART_NAMES[self.section]} is not valid UTF-8")
        elif isinstance(event, Text):
            yield from self._text(event.text)
        else:
            self.foreign += event.length
            yield from self._channel_mark(event.name) if self._syntax.channels else self._tag(event.name)

    def _text(self, text: str) -> Iterator[Part]:
        if self._header is not None:
            self._header += text
            self.foreign += len(text)
            return
        if self._undecided is not None:
            self._undecided += text
            if BARE_CALL.match(self._undecided):
                yield from self._decided("call")
            elif not BARE_BEGINNING.fullmatch(self._undecided):
                yield from self._decided("content")
            return
        if self.section != "content":
            self.foreign += len(text)
        else:
            if self._calls and text.strip():
                self._after_call()
            self._answered = self._answered or bool(text.strip())
        yield Part(self.section, text)

    def _decided(self, section: Section) -> Iterator[Part]:
        text, self._undecided = self._undecided or "", None
        self.section = section
        yield from self._text(text)

    def _after_call(self) -> None:
        if "text after a tool call" not in self.problems:
            self.problems.append("text after a tool call")

    def _tag(self, name: str) -> Iterator[Part]:
        think, call = self._syntax.think or ("", ""), self._syntax.call or ("", "")
        if self.section == "content" and name == think[0]:
            if self._traces or self._answered or self._calls:
                self.problems.append("a trace after the answer began" if self._answered else "a second trace")
            self._traces += 1
            self.section = "thinking"
            yield Part("thinking", "")
        elif self.section == "content" and name == call[0]:
            self.section = "call"
            self._calls += 1
        elif (self.section, name) in (("thinking", think[1]), ("call", call[1])):
            yield from self._end()
            self.section = "content"
        elif name == PYTHON_TAG and self._undecided == "":
            yield from self._decided("call")
        else:
            self._stray(name)

    def _channel_mark(self, name: str) -> Iterator[Part]:
        """Harmony: a message is a header, `<|message|>`, its text and its end."""
        if name == MESSAGE and self._header is not None:
            head, self._header = self._header, None
            recipient = RECIPIENT.search(head.replace(CHANNEL, " "))
            if recipient:
                self.section = "call"
                self._calls += 1
                yield Part("call", f'{{"name": {json.dumps(recipient[1], ensure_ascii=False)}, "arguments": ')
            elif f"{CHANNEL}analysis" in head:
                self.section = "thinking"
                yield Part("thinking", "")
        elif name in CHANNEL_ENDS and self._header is None:
            if self.section != "content":
                yield from self._end()
            self.section, self._header = "content", ""
        elif self._header is not None and name in (CHANNEL, START, "<|constrain|>"):
            self._header += name if name == CHANNEL else ""
        else:
            self._stray(name)

    def _end(self) -> Iterator[Part]:
        yield Part(self.section, "}" if self._syntax.channels and self.section == "call" else "", ends=True)

    def _stray(self, name: str) -> None:
        names = self._strays.setdefault(self.section, [])
        if name not in names:
            names.append(name)
