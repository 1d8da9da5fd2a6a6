"""Reads an assistant turn while it is written: which text is trace, which is answer, which is a tool call.

`parse` (ingot/tokens/chat.py), the terminal chat and the server read turns with it, so a streamed turn and a whole one mean the
same. It walks the table of states and marks that the format declares (`formats.yaml`); the inside of calls is read by
`call_reader.py`. Whatever a model writes is read and kept: what is out of order is named in `problems`.

Invariant: however a turn is cut into tokens or pieces, the parts, neighbouring texts joined, are the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ingot.tokens.call_reader import CallReader, Section, TurnPart
from ingot.tokens.scan import Broken, Mark, Scanner, Text
from ingot.tokens.syntax import TEXTS, Next, State, Syntax
from ingot.tokens.tokenizer import Tokenizer

PART_NAMES: dict[Section, str] = {
    "content": "content",
    "thinking": "thinking",
    "call": "tool call",
    "arguments": "tool call",
}
BARE: dict[
    str, tuple[re.Pattern[str], re.Pattern[str], State]
] = {  # what a call that is the whole turn begins with, what may yet become one, and how it is read
    "json": (re.compile(r'\s*\{\s*"name"\s*:'), re.compile(r'\s*(\{\s*("n?a?m?e?"?\s*)?)?'), "call"),
    "python": (re.compile(r"\s*\[\s*[A-Za-z_]\w*\("), re.compile(r"\s*(\[\s*([A-Za-z_]\w*)?)?"), "list"),
}


class TurnReader:
    """One turn. `in_thinking`: the prompt opened its trace; `calls`: whether calls that are spelt as plain text count.

    `tools` are those that were offered: their schemas say which arguments are text, where the format does not.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        syntax: Syntax,
        *,
        in_thinking: bool = False,
        calls: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        self.problems: list[str] = []
        self.foreign = 0  # characters that were no content
        self._syntax, self._tools = syntax, tools
        self._state: State = "thinking" if in_thinking else syntax.begins
        self._scanner = Scanner(tokenizer, syntax.inside_marks(tokenizer.special))
        self._ignored = frozenset() if calls else frozenset(syntax.openers) - frozenset(tokenizer.special)
        self._strays: dict[Section, list[str]] = {}
        self._traces = int(in_thinking)
        self._answered = False
        self._calls = 0
        self._reader: CallReader | None = None
        self._header = ""
        self._bare = BARE[syntax.bare] if syntax.bare and calls else None
        self._undecided: str | None = "" if self._bare and not in_thinking else None  # may be a bare call
        self._is_bare = False
        self._look()

    @property
    def section(self) -> Section:
        """What the next token is part of."""
        if self._state == "thinking":
            return "thinking"
        return "content" if self._state in TEXTS else "call"

    @property
    def start(self) -> int:
        """The character of the content with which the token that came last begins."""
        return self._scanner.start - self.foreign

    def push(self, token: int) -> Iterator[TurnPart]:
        """The parts that `token` adds."""
        for event in self._scanner.push(token):
            yield from self._event(event)

    def read(self, tokens: Sequence[int]) -> Iterator[TurnPart]:
        """The parts of a whole turn."""
        for event in self._scanner.push_all(tokens):
            yield from self._event(event)
        yield from self.finish()

    def finish(self) -> Iterator[TurnPart]:
        """The parts that were held back, at the end of the turn."""
        for event in self._scanner.finish():
            yield from self._event(event)
        if self._undecided:
            yield from self._decided("content")
        if self._reader is not None:
            yield from self._end_call(self._missing())
        elif self._state == "thinking":
            yield TurnPart("thinking", "", ends=True)
            self.problems.append(f"{self._missing() or 'the end of the trace'} is missing")
        elif self._header.strip():
            yield from self._end_header()
        for section, names in self._strays.items():
            self.problems.append(f"stray {', '.join(names)} in the {PART_NAMES[section]}")
        self._strays = {}

    def _end_header(self) -> Iterator[TurnPart]:
        """What no mark made a message of: an answer, if it is text alone."""
        marks = self._syntax.marks("header")
        mark = next(mark for mark, to in marks.items() if to != "header")
        self.problems.append(f"no {mark.strip() or 'line break'} after {self._header.strip()!r}")
        if self._syntax.channels and not any(mark in self._header for mark in marks):
            self.foreign -= len(self._header)
            yield TurnPart("content", self._header)

    def _look(self) -> None:
        """Look for the marks of the state, and beside the call for those that would be stray."""
        state = self._state if self._reader is None else self._reader.state
        self._state = state
        if self._syntax.bare or state in ("content", "thinking"):
            marks = self._syntax.outer_marks - self._ignored
            self._scanner.look_for(sorted(marks))
        else:
            unsure = None if self._reader is None else self._reader.unsure
            listed = [*self._syntax.marks(state), *(self._syntax.marks(unsure) if unsure else ())]
            self._scanner.look_for(listed, any_sign=unsure is not None)

    def _event(self, event: Text | Mark | Broken) -> Iterator[TurnPart]:
        if isinstance(event, Broken):
            self.problems.append(f"the {PART_NAMES[self.section]} is not valid UTF-8")
        elif isinstance(event, Text):
            yield from self._text(event.text)
        else:
            yield from self._mark(event.name, event.length)
        self._look()

    def _text(self, text: str) -> Iterator[TurnPart]:
        if self._undecided is not None and self._bare is not None:
            self._undecided += text
            begins, may_begin, state = self._bare
            if begins.match(self._undecided):
                yield from self._decided(state)
            elif not may_begin.fullmatch(self._undecided):
                yield from self._decided("content")
            return
        if self._state != "content":
            self.foreign += len(text)
        if self._reader is not None:
            yield from self._reader.text(text)
        elif self._state == "header":
            self._header += text
        else:
            if self._state == "content" and text.strip():
                if self._calls:
                    self._say_once("text after a tool call")
                self._answered = True
            yield TurnPart("thinking" if self._state == "thinking" else "content", text)

    def _decided(self, state: State) -> Iterator[TurnPart]:
        """What may have been a bare call is one, or is not."""
        text, self._undecided = self._undecided or "", None
        if state != "content":
            self._is_bare = True
            self._begin_call(state, "")
        yield from self._text(text)

    def _mark(self, name: str, length: int) -> Iterator[TurnPart]:
        reader = self._reader
        if length and reader is not None and (reader.in_string or name not in self._syntax.marks(reader.state)):
            yield from self._text(name)
            return
        to = self._syntax.marks(self._state).get(name)
        if to is None and not length:
            self.foreign += length
            yield from self._unlisted(name)
            return
        if to is None or (self._state == "thinking" and length and name in self._syntax.openers):
            self._stray(name)
            yield from self._text(name)
            return
        if self._undecided:
            yield from self._decided("content")
        self.foreign += length
        yield from self._go(name, to)

    def _unlisted(self, name: str) -> Iterator[TurnPart]:
        """A special token that the state does not list: it ends what was not ended, or is stray."""
        outside = self._syntax.marks("content")
        if self._state == "thinking" and name in self._syntax.openers:
            yield TurnPart("thinking", "", ends=True)
            self.problems.append(f"{self._missing() or 'the end of the trace'} is missing")
            self._state = "content"
            yield from self._go(name, outside[name])
        elif self._reader is not None and name in self._syntax.call_marks and name not in self._syntax.inner_marks:
            begins = name in outside or self._syntax.marks("calls").get(name, "content") != "content"
            yield from self._end_call(self._missing(), "" if begins else name)
            if name in outside:
                yield from self._go(name, outside[name])
            elif begins:
                self._begin_call("calls", "")
                yield from self._go(name, self._syntax.marks("calls")[name])
        else:
            self._stray(name)

    def _target(self, next: Next) -> tuple[State, str | None]:
        """The state that a mark leads to; where the header decides, also the name of the tool that it calls."""
        if isinstance(next, str):
            return next, None
        for pattern, state in next:
            match = re.search(pattern, self._header)
            if match:
                return state, match[1] if match.re.groups else None
        return "content", None

    def _go(self, name: str, next: Next) -> Iterator[TurnPart]:
        """Follow a mark to the state that it leads to."""
        to, called = self._target(next)
        if self._reader is not None and to not in TEXTS:
            yield from self._reader.mark(name, to)
            return
        if self._reader is not None:
            yield from self._end_call(None, name)
        elif self._state == "thinking" and to != "thinking":
            yield TurnPart("thinking", "", ends=True)
        self._header = (self._header + name if self._state == "header" else "") if to == "header" else ""
        if to not in TEXTS:
            self._begin_call(to, name)
            assert self._reader is not None
            if called is not None:
                yield from self._reader.named(called)
            return
        if to == "thinking":
            yield from self._begin_trace()
        elif to == "content" and self._bare is not None and not self._answered:
            self._undecided = ""
        self._state = to

    def _begin_trace(self) -> Iterator[TurnPart]:
        if not self._syntax.channels and (self._traces or self._answered or self._calls):
            self.problems.append("a trace after the answer began" if self._answered else "a second trace")
        self._traces += 1
        yield TurnPart("thinking", "")

    def _begin_call(self, state: State, mark: str) -> None:
        self._calls += 1
        self._undecided = None
        self._reader = CallReader(self._syntax, state, self._tools, mark)
        self._state = state

    def _end_call(self, missing: str | None, mark: str = "") -> Iterator[TurnPart]:
        reader, self._reader = self._reader, None
        assert reader is not None
        self._state = "content"
        yield from reader.finish(missing, mark)
        self.problems += reader.problems
        if missing is not None:
            self.problems.append(f"{missing} is missing")

    def _missing(self) -> str | None:
        """The mark that should end what is being read; None: nothing need end it."""
        state = self._state if self._reader is None else self._reader.state
        if self._is_bare:
            return None
        if state in ("arguments", "name", "skip", "list") and not self._syntax.closes(state):
            return None if state in ("arguments", "list") else "the rest of a tool call"
        if self._syntax.channels:
            return "the end of the message"
        return self._syntax.closes(state) or "the rest of a tool call"

    def _say_once(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)

    def _stray(self, name: str) -> None:
        names = self._strays.setdefault(self.section, [])
        if name not in names:
            names.append(name)
