"""Parses sampled tokens into content, reasoning and tool calls, while they are streamed.

Structure is read from special tokens, as in ingot/tokens/chat.py: text that merely looks like `<think>` is content. A
model without tokens for tool calls writes their tags as text; then, if tools were offered, the tags are looked for in the
content. Stop strings count in the content only: neither a thought nor a call is cut off by them.

Invariant: the deltas, put together, do not depend on how the tokens are grouped, so a streamed answer and a whole one
are the same. Blank lines around a trace, and blanks before a call, are layout and not part of the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from ingot.inference.text import TextStream
from ingot.serve.openai.calls import CallStream, Delta
from ingot.tokens.tokenizer import THINK_END, THINK_START, TOOL_CALL_END, TOOL_CALL_START, Tokenizer

Section = Literal["content", "reasoning", "call"]


class TurnParser:
    """One assistant turn. `tags`: look for tool calls that are spelt in text; `in_thinking`: the prompt opened a trace."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        stop_strings: Sequence[str] = (),
        in_thinking: bool = False,
        tags: bool = False,
        calls: bool = False,
    ) -> None:
        self.reasoning_tokens = 0
        self.released = 0  # characters of content that need not be held back, layout included
        self.calls = 0
        self.section: Section = "reasoning" if in_thinking else "content"
        self._tokenizer, self._stop_strings, self._tags = tokenizer, tuple(stop_strings), tags
        self._holds_blanks = tags or calls  # a call may follow, and the blanks before it are layout
        special = tokenizer.special
        self._special = frozenset(special.values())
        self._think = special.get(THINK_START), special.get(THINK_END)
        self._call_tags = special.get(TOOL_CALL_START), special.get(TOOL_CALL_END)
        self._content = TextStream(tokenizer, self._stop_strings)
        self._other = TextStream(tokenizer)  # of the section that is not content
        self._call = CallStream()
        self._before = 0  # characters of content before what `_content` has
        self._tagged = ""  # content that may be the beginning of a tag
        self._in_tag = False
        self._blanks = ""
        self._at_start = in_thinking  # of a section whose leading blank lines are layout

    @property
    def stopped(self) -> bool:
        """Whether a stop string was found; nothing more is read then."""
        return self._content.stopped

    @property
    def start(self) -> int:
        """The character of the content, layout included, with which its last token begins."""
        return self._before + self._content.start

    def push(self, token: int) -> list[Delta]:
        """The deltas that `token` adds."""
        if self.section == "reasoning":
            self.reasoning_tokens += 1
        if token in self._special:
            return list(self._structure(token))
        if self.section == "content":
            return list(self._content_text(self._content.push(token)))
        return list(self._other_text(self._other.push(token)))

    def finish(self) -> list[Delta]:
        """The deltas that were held back, at the end of the turn."""
        if self.section == "content":
            return [*self._content_text(self._content.finish()), *self._end_tags(), *self._end_blanks()]
        return list(self._end_section())

    # ---- special tokens

    def _structure(self, token: int) -> Iterator[Delta]:
        """Sections begin and end at special tokens; others are dropped."""
        starts = {self._think[0]: "reasoning", self._call_tags[0]: "call"}
        if self.section == "content" and token in starts:
            yield from self._content_text(self._flushed_content())
            self._before = self.released
            yield from self._end_tags()
            self._blanks = ""
            self.section = "reasoning" if starts[token] == "reasoning" else "call"
            self._at_start = self.section == "reasoning"
            self.reasoning_tokens += self.section == "reasoning"
        elif (self.section, token) in (("reasoning", self._think[1]), ("call", self._call_tags[1])):
            yield from self._end_section()
            self._at_start = self.section == "reasoning"
            self.section = "content"

    def _flushed_content(self) -> str:
        """The content that was held back, when something else begins; stop strings do not reach across it."""
        text = self._content.finish()
        if not self._content.stopped:
            self._content = TextStream(self._tokenizer, self._stop_strings)
        return text

    def _end_section(self) -> Iterator[Delta]:
        yield from self._other_text(self._other.finish())
        self._other = TextStream(self._tokenizer)
        if self.section == "call":
            yield from self._count(self._call.finish())
            self._call = CallStream()
        self._blanks = ""

    # ---- text

    def _other_text(self, text: str) -> Iterator[Delta]:
        if self.section == "call":
            yield from self._count(self._call.push(text))
        else:
            yield from self._trimmed("reasoning", text, hold=True)

    def _content_text(self, text: str) -> Iterator[Delta]:
        self.released += len(text)
        if not self._tags:
            yield from self._trimmed("content", text, hold=self._holds_blanks)
            return
        self._tagged += text
        while True:
            tag = TOOL_CALL_END if self._in_tag else TOOL_CALL_START
            before, found, after = self._tagged.partition(tag)
            if not found:
                held = _overlap(before, tag)
                yield from self._outside_tag(before[: len(before) - held])
                self._tagged = before[len(before) - held :]
                return
            yield from self._outside_tag(before)
            self._tagged = after
            yield from self._turn_tag()

    def _turn_tag(self) -> Iterator[Delta]:
        if self._in_tag:
            yield from self._count(self._call.finish())
            self._call = CallStream()
        self._in_tag = not self._in_tag
        self._blanks = ""

    def _outside_tag(self, text: str) -> Iterator[Delta]:
        """Text between two tags: of the content, or of a call."""
        if self._in_tag:
            yield from self._count(self._call.push(text))
        else:
            yield from self._trimmed("content", text, hold=True)

    def _end_tags(self) -> Iterator[Delta]:
        """At the end of the turn a beginning of a tag is text, and a call without its end is a call."""
        rest, self._tagged = self._tagged, ""
        yield from self._outside_tag(rest)
        if self._in_tag:
            yield from self._turn_tag()

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

    def _count(self, deltas: Iterator[Delta]) -> Iterator[Delta]:
        for delta in deltas:
            self.calls += delta.kind == "call"
            yield delta


def _overlap(text: str, tag: str) -> int:
    """How many of the last characters are the beginning of `tag`."""
    return next((size for size in range(min(len(tag) - 1, len(text)), 0, -1) if tag.startswith(text[-size:])), 0)
