"""Turns sampled tokens into the deltas of an answer, while they are streamed: content, reasoning and tool calls.

Which text is what is read by `ingot.tokens.turn`, as everywhere: marks that are special tokens count by their ids, and text
that merely looks like `<think>` is content. Calls that are spelt in plain text count only if tools were offered. Stop strings
count in the content only: neither a thought nor a call is cut off by them.

Invariant: the deltas, put together, do not depend on how the tokens are grouped, so a streamed answer and a whole one
are the same. Blank lines around a trace, and blanks before a call, are layout and not part of the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ingot.inference.text import StopStrings
from ingot.tokens.call_reader import Section, TurnPart
from ingot.tokens.syntax import Syntax
from ingot.tokens.tokenizer import Tokenizer
from ingot.tokens.turn import TurnReader


@dataclass(frozen=True)
class Delta:
    """A piece of an answer. A `call` carries its name; `arguments` belong to the call announced last."""

    kind: Literal["content", "reasoning", "call", "arguments"]
    text: str


class TurnParser:
    """One assistant turn. `calls`: these tools were offered; `in_thinking`: the prompt opened a trace.

    A call is announced by its name as soon as that is known; its arguments follow as the model writes them. What cannot be read
    as a call at all is given back as text.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        syntax: Syntax,
        *,
        stop_strings: Sequence[str] = (),
        in_thinking: bool = False,
        calls: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        self.reasoning_tokens = 0
        self.released = 0  # characters of content that need not be held back, layout included
        self.calls = 0
        self._reader = TurnReader(tokenizer, syntax, in_thinking=in_thinking, calls=calls, tools=tools)
        self._holds_blanks = calls  # a call may follow, and the blanks before it are layout
        self._stop_strings = tuple(stop_strings)
        self._content = StopStrings(self._stop_strings)
        self._blanks = ""
        self._last: Section = self._reader.section
        self._at_start = syntax.thinks  # of a section whose leading blank lines are layout

    @property
    def section(self) -> Section:
        """What the next token is part of."""
        return self._reader.section

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found; nothing more is read then."""
        return self._content.stopped

    @property
    def start(self) -> int:
        """The character of the content, layout included, with which its last token begins."""
        return self._reader.start

    def push(self, token: int) -> list[Delta]:
        """The deltas that `token` adds."""
        before = self.section
        deltas = list(self._deltas(self._reader.push(token)))
        self.reasoning_tokens += "thinking" in (before, self.section)
        return deltas

    def finish(self) -> list[Delta]:
        """The deltas that were held back, at the end of the turn."""
        deltas = list(self._deltas(self._reader.finish()))
        if self._last == "content":
            deltas += [*self._content_text(self._content.finish()), *self._end_blanks()]
        return deltas

    def _deltas(self, parts: Iterable[TurnPart]) -> Iterator[Delta]:
        for part in parts:
            yield from self._enter("call" if part.section == "arguments" else part.section)
            if part.section == "content":
                yield from self._content_text(self._content.push(part.text))
            elif part.section == "thinking":
                yield from self._trimmed("reasoning", part.text, hold=True)
            elif part.outcome is not None:
                if part.section == "call":  # it was never announced
                    yield Delta("content", part.outcome.written)
            else:
                self.calls += part.section == "call"
                yield Delta("call" if part.section == "call" else "arguments", part.text)

    def _enter(self, section: Section) -> Iterator[Delta]:
        """The content that was held back when something else begins; stop strings do not reach across it."""
        if section == self._last:
            return
        if self._last == "content":
            yield from self._content_text(self._content.finish())
            if not self._content.stopped:
                self._content = StopStrings(self._stop_strings)
        self._at_start = section == "thinking" or self._last == "thinking"
        self._blanks = ""
        self._last = section

    def _content_text(self, text: str) -> Iterator[Delta]:
        self.released += len(text)
        yield from self._trimmed("content", text, hold=self._holds_blanks)

    def _end_blanks(self) -> Iterator[Delta]:
        blanks, self._blanks = self._blanks, ""
        if blanks and not self.calls:
            yield Delta("content", blanks)

    def _trimmed(self, kind: Literal["content", "reasoning"], text: str, *, hold: bool) -> Iterator[Delta]:
        """The text without leading blank lines at the start of a section, and with its last blanks held back."""
        if self._at_start:
            text = text.lstrip("\n")
            if not text:
                return
            self._at_start = False
        if hold:
            text = self._blanks + text
            shown = text.rstrip()
            self._blanks = text[len(shown) :]
            text = shown
        if text:
            yield Delta(kind, text)
