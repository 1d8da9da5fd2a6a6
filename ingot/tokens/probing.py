"""What a chat template prints around turns whose parts are known: how it wants calls, and the tokens that end a turn.

Templates differ in what they take. Those of DeepSeek print the arguments of a call as they are, so that they must be JSON
already, and some print a call only where the content is none. Those of GLM print no end: a turn is over when the mark of who
speaks next comes, which the model writes itself.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from functools import cached_property

from ingot.tokens.layout import PROBE, Layout, find_layout
from ingot.tokens.message import Message, ToolCall
from ingot.tokens.rendering import CallForm, Format, Rendering
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import ArtifactError, DataError

PROBE_CALL = ToolCall("probe", {"probe": PROBE})
CALL_FORMS = [CallForm(text, none) for none in (False, True) for text in (False, True)]


def with_call_form(format: Format) -> Format:
    """The format with the form of calls that its template prints: mappings if it can."""
    if not format.syntax.calls:
        return format
    asked = [Message("user", "."), Message("assistant", "", tool_calls=[PROBE_CALL])]
    for form in CALL_FORMS:
        tried = dataclasses.replace(format, calls=form)
        try:
            text = Rendering(tried, asked, None, True).whole()
        except DataError:
            continue
        if PROBE_CALL.name in text and PROBE in text and "{'probe'" not in text:
            return tried
    return format


class Probe:
    """A format's template, asked with turns whose parts are known. `structure` finds special tokens in rendered text."""

    def __init__(self, format: Format, tokenizer: Tokenizer, structure: re.Pattern[str]) -> None:
        self.format, self._tokenizer, self._structure = format, tokenizer, structure

    @cached_property
    def layout(self) -> Layout:
        """The blanks that the template prints around traces and calls."""
        return find_layout(self.format.syntax, self._turn)

    @cached_property
    def answer_end(self) -> int:
        """The token with which the model ends an answer."""
        end = self._printed_answer_end if self._printed_answer_end is not None else self.inner_end
        if end is None:
            raise ArtifactError(
                "the chat template prints no special token after an answer: the model would never stop",
                fix="let the template print the token that ends a turn, and add it to the tokenizer as a special token: "
                "`ingot model grow MODEL --tokens turns`",
            )
        return end

    @cached_property
    def call_end(self) -> int:
        """The token with which the model ends a turn that calls tools."""
        if self._printed_call_end is not None:
            return self._printed_call_end
        called = [Message("assistant", "", tool_calls=[PROBE_CALL]), Message("tool", ".")]
        following = self._after_probe(called, first=True) if self.format.syntax.calls and self._no_end else None
        return self.answer_end if following is None else following

    @cached_property
    def inner_end(self) -> int | None:
        """The token that ends an answer which others follow."""
        return self._after_probe([Message("assistant", PROBE), Message("user", ".")], first=True)

    def closing(self, message: Message) -> str:
        """What the model writes to end this turn, where the template prints that only once others follow."""
        if message.role != "assistant" or not self._no_end:
            return ""
        return self._tokenizer.piece(self.call_end if message.tool_calls else self.answer_end)

    @property
    def _no_end(self) -> bool:
        return self._printed_answer_end is None

    @cached_property
    def _printed_answer_end(self) -> int | None:
        return self._after_probe([Message("assistant", PROBE)])

    @cached_property
    def _printed_call_end(self) -> int | None:
        if not self.format.syntax.calls:
            return None
        return self._after_probe([Message("assistant", "", tool_calls=[PROBE_CALL])])

    def _after_probe(self, messages: Sequence[Message], first: bool = False) -> int | None:
        """The last special token that the template prints behind the probing text, or the first one; none of a call's own."""
        try:
            text = Rendering(self.format, [Message("user", "."), *messages], None, True).whole()
        except DataError:  # a template that has something against these turns
            if not any(message.tool_calls for message in messages):
                raise
            return None
        syntax = self.format.syntax
        inside = (syntax.call_marks | set(syntax.think or ())) - syntax.ends | syntax.inside_marks(
            self._tokenizer.special
        )
        found = [
            one[0] for one in self._structure.finditer(text, text.find(PROBE) + len(PROBE)) if one[0] not in inside
        ]
        return self._tokenizer.special[found[0 if first else -1]] if found and PROBE in text else None

    def _turn(self, message: Message, thinking: bool) -> str:
        """The text of a turn behind its prompt; of the whole conversation where that does not begin with the prompt."""
        try:
            rendering = Rendering(self.format, [Message("user", "."), message], None, thinking)
            return rendering.whole().removeprefix(rendering.prompt(1))
        except DataError:
            return ""
