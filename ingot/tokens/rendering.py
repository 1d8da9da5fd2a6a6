"""One conversation on its way through a chat template, whole or any prefix of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ingot.tokens.message import ROLES, Message
from ingot.tokens.syntax import Syntax
from ingot.tokens.template import ChatTemplate, Disguise
from ingot.workspace.errors import DataError

SHOWN = 40  # characters of what a template leaves out, in its error


@dataclass(frozen=True)
class CallForm:
    """How a template takes calls: their arguments as JSON `text`, and none as the content of a turn that says nothing else."""

    text: bool = False
    no_content: bool = False


@dataclass(frozen=True)
class Format:
    """A compiled template, how it writes turns, the special tokens' names, and those of the model's files (bos_token …).

    `calls` is how the template takes calls.
    """

    template: ChatTemplate
    syntax: Syntax
    special: Sequence[str]
    names: Mapping[str, str]
    calls: CallForm = CallForm()


class UnprintedTraceError(DataError):
    """A trace that the template does not print."""


class Rendering:
    """One conversation on its way through the template: every prefix of it in the same disguise.

    `begun` is a rendering of its first messages: what that has rendered is not rendered again.
    """

    def __init__(
        self,
        format: Format,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] | None,
        thinking: bool,
        begun: Rendering | None = None,
        disguise: Disguise | None = None,
    ) -> None:
        for number, message in enumerate(messages):
            _check_message(message, number, thinking, format.syntax)
        if tools and not format.syntax.calls:
            raise DataError(
                "tools for a chat template that has no tool calls",
                fix="leave the tools out, or give the model a template that has them: ingot model template MODEL FOLDER chatml; "
                "if it has some that were not found: ingot model template MODEL FOLDER --format FORMAT",
            )
        self._format, self._thinking, self._originals = format, thinking, messages
        self.turns = len(messages)
        self.assistant_turns = [number for number, message in enumerate(messages) if message.role == "assistant"]
        shown = [_for_template(message) for message in messages]
        if format.syntax.ids is not None:
            _number_calls(shown, format.syntax.ids)
        _shape_calls(shown, format.calls)
        wrapped = [tool if "function" in tool else {"type": "function", "function": tool} for tool in tools or ()]
        self._disguise = disguise or Disguise(format.special, [shown, wrapped])
        # Hidden once, not in every rendering of a prefix: templates cannot change what they are given (an immutable sandbox).
        self._messages: list[dict[str, Any]] = self._disguise.hide(shown)
        # Most templates ask for `enable_thinking`, those of DeepSeek for `thinking`.
        self._values = {
            "tools": self._disguise.hide(wrapped) or None,
            "enable_thinking": thinking,
            "thinking": thinking,
        }
        self._rendered: dict[tuple[int, bool], str] = {}
        if begun is not None and self._goes_on_from(begun):
            self._rendered |= begun._rendered

    def _goes_on_from(self, begun: Rendering) -> bool:
        """Whether the first messages are those of `begun`, and the template is given the same with them."""
        same = self._format is begun._format and self._values == begun._values and self._disguise == begun._disguise
        return same and self._messages[: begun.turns] == begun._messages

    def whole(self) -> str:
        """The whole conversation."""
        return self._render(len(self._messages), generation_prompt=False)

    def first(self, turns: int) -> str:
        """The first `turns` messages, as if there were no others."""
        return self._render(turns, generation_prompt=False)

    def after_a_question(self, turn: int) -> Rendering:
        """The turn by itself, behind a question, in the same disguise: the texts can be put together."""
        asked = [Message("user", "."), self._originals[turn]]
        return Rendering(self._format, asked, None, self._thinking, disguise=self._disguise)

    def prompt(self, turns: int) -> str:
        """The first `turns` messages and the generation prompt."""
        return self._render(turns, generation_prompt=True)

    def message(self, turn: int) -> Message:
        """A message as it was given."""
        return self._originals[turn]

    def show(self, text: str) -> str:
        """A part of the rendered text as it is."""
        return str(self._disguise.show(text))

    def check_printed(self, turn: int, text: str) -> None:
        """Refuse a turn that is learnt as `text` without its trace, a call or its words; blanks may differ, names be JSON."""
        message = self._messages[turn]
        calls = [("the tool call", call["function"]["name"]) for call in message.get("tool_calls", ())]
        for what, part in (
            ("the trace", message.get("thinking") or ""),
            *calls,
            ("the text", message["content"] or ""),
        ):
            written = part.strip() in text or "".join(part.split()) in "".join(text.split())
            if not written and json.dumps(part, ensure_ascii=False) not in text:
                error = UnprintedTraceError if what == "the trace" else DataError
                raise error(
                    f"the chat template does not print {what} of this turn: {self.show(part)[:SHOWN]!r}",
                    place=f"message {turn}",
                    fix="choose a template that does (`ingot model template`)",
                )

    def _render(self, turns: int, generation_prompt: bool) -> str:
        if (turns, generation_prompt) not in self._rendered:
            values = {**self._values, "messages": self._messages[:turns], "add_generation_prompt": generation_prompt}
            text = self._format.template.render_hidden(self._disguise, values, self._format.names)
            self._rendered[turns, generation_prompt] = text
        return self._rendered[turns, generation_prompt]


def _for_template(message: Message) -> dict[str, Any]:
    """The message with its trace under both names that templates use."""
    value = message.to_dict()
    return value | ({"reasoning_content": message.thinking} if message.thinking is not None else {})


def _number_calls(shown: Sequence[dict[str, Any]], ids: str) -> None:
    """Give every call an id, and every result the id of its call: results answer calls in their order."""
    number, open_ids = 0, list[str]()
    for message in shown:
        for call in message.get("tool_calls", ()):
            call["id"] = ids.format(name=call["function"]["name"], number=number)
            open_ids.append(call["id"])
            number += 1
        if message["role"] == "tool":
            message["tool_call_id"] = open_ids.pop(0) if open_ids else ids.format(name="", number=number)


def _shape_calls(shown: Sequence[dict[str, Any]], form: CallForm) -> None:
    for message in shown:
        for call in message.get("tool_calls", ()):
            arguments = call["function"]["arguments"]
            if form.text:
                call["function"] = {**call["function"], "arguments": json.dumps(arguments, ensure_ascii=False)}
        if form.no_content and message.get("tool_calls") and not message["content"]:
            message["content"] = None


def _check_message(message: Message, number: int, thinking: bool, syntax: Syntax) -> None:
    """Refuse a message that the template would render to something else than was meant."""
    place = f"message {number}"
    if message.role not in ROLES:
        raise DataError(f"unknown role {message.role!r}", place=place, fix=f"use one of {', '.join(ROLES)}")
    if message.role == "system" and number > 0:
        raise DataError("a system turn after the first turn", place=place, fix="put the system turn first")
    if message.role != "assistant" and (message.thinking is not None or message.tool_calls):
        raise DataError(
            f"a {message.role} turn with thinking or tool calls", place=place, fix="only assistants have them"
        )
    if message.thinking and not thinking:
        raise DataError(
            "a thinking trace in a conversation with thinking=False",
            place=place,
            fix="drop it with message.without_thinking(), or use thinking=True",
        )
    for wanted, has, what in (
        (message.thinking is not None, syntax.thinks, "traces"),
        (bool(message.tool_calls), syntax.calls, "tool calls"),
    ):
        if wanted and not has:
            error = UnprintedTraceError if what == "traces" else DataError
            raise error(
                f"a turn with {what}, for a chat template that has none",
                place=place,
                fix=f"drop the {what}, or choose a template that writes them (`ingot model template`); where the model lacks "
                "its tokens: `ingot model grow MODEL FOLDER --tokens think,tools --template ingot`",
            )
