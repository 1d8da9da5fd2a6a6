"""Conversations as tokens: what the model reads, what it must write, and back.

The layout is that of the tokenizer's chat template. Ingot's own (`chat_template.jinja`) is ChatML:

    <|im_start|>user\\nTEXT<|im_end|>\\n<|im_start|>assistant\\n<think>TRACE</think>ANSWER<|im_end|>\\n

What the model writes is found in the rendered text, so any template serves: an assistant turn begins where the prompt for it
(the turns before it, rendered with the generation prompt) ends, and goes on to the token that ends a turn, which is the
first special token that the template prints after an answer.

Invariants, each with a test:

* `prompt(messages[:k])` is an exact token prefix of `conversation(messages)` for every assistant turn k, because text
  is cut at the boundary between what is given and what is generated, and each part is encoded by itself. A template
  that would break this for some conversation is refused with the reason.
* The assistant mask is 1 exactly on what the model writes. Without thinking the generation prompt itself supplies
  `<think></think>`, so these two are 0. A conversation whose mask is all zero is an error, never a silent no-op.
* Tokens are encoded once: `continuation` gives the tokens between two assistant turns, and sampled tokens are not encoded again.
* No content can forge structure: see `ingot.tokens.template`.
* `parse` inverts an assistant turn of Ingot's own template.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args

from ingot.tokens.template import ChatTemplate, Disguise, can_be_structure
from ingot.tokens.tokenizer import (
    TEMPLATE_FILE,
    THINK_END,
    THINK_START,
    TOOL_CALL_END,
    TOOL_CALL_START,
    Tokenizer,
)
from ingot.workspace.errors import ArtifactError, DataError

Role = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = get_args(Role)
PROBE = "a probing answer"  # the end of a turn is looked for behind it


@dataclass
class ToolCall:
    """A call that the model asks for: the tool's name and its arguments by name."""

    name: str
    arguments: dict[str, Any]


@dataclass
class Message:
    """One turn. `thinking` None: no trace at all; "": an empty one. `problems`: what `parse` found malformed."""

    role: Role
    content: str = ""
    thinking: str | None = None
    tool_calls: list[ToolCall] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The message as the JSON-like mapping that chat templates read; empty parts are left out."""
        value: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.thinking is not None:
            value["thinking"] = self.thinking
        if self.tool_calls:
            value["tool_calls"] = [
                {"type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.tool_calls
            ]
        return value

    @classmethod
    def from_dict(cls, value: dict[str, Any]) -> Message:
        """The inverse of `to_dict`."""
        calls = [call.get("function", call) for call in value.get("tool_calls") or []]
        return cls(
            role=value["role"],
            content=value.get("content") or "",
            thinking=value.get("thinking"),
            tool_calls=[ToolCall(call["name"], call["arguments"]) for call in calls],
        )

    def without_thinking(self) -> Message:
        """The message with its trace dropped: for histories shown in no-think mode."""
        return dataclasses.replace(self, thinking=None)


def default_chat_template() -> str:
    """The text of the chat template that comes with Ingot."""
    return (Path(__file__).parent / TEMPLATE_FILE).read_text(encoding="utf-8")


class ChatFormat:
    """Messages to tokens and back, by the chat template that belongs to the tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        if tokenizer.chat_template is None:
            raise ArtifactError(
                "the tokenizer has no chat template, so the layout of a conversation is unknown",
                fix=f"put the template of its family into the tokenizer's folder as {TEMPLATE_FILE}",
            )
        self.tokenizer = tokenizer
        self._template = ChatTemplate(tokenizer.chat_template)
        self._names = sorted(filter(can_be_structure, tokenizer.special), key=len, reverse=True)
        self._structure = re.compile("|".join(map(re.escape, self._names)) or "(?!)")
        self._check_encoding()

    def prompt(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] | None = None, thinking: bool = True
    ) -> list[int]:
        """The tokens of `messages` and the generation prompt: what the model is given to write the next turn."""
        rendering = _Rendering(self, messages, tools, thinking)
        text = rendering.prompt(len(messages))
        try:
            return self._tokens_and_mask(text, rendering)[0]
        except (
            DataError
        ):  # the template shows earlier turns differently from how they were written: there is no prefix to cut at
            return self._encode(text, rendering)

    def conversation(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] | None = None, thinking: bool = True
    ) -> tuple[list[int], list[int]]:
        """The tokens of a whole conversation and the mask: 1 on what the model writes in each assistant turn."""
        rendering = _Rendering(self, messages, tools, thinking)
        tokens, mask = self._tokens_and_mask(rendering.whole(), rendering)
        if not any(mask):
            raise DataError(
                "the assistant mask is all zero: nothing would be learnt from this conversation",
                fix="give a conversation with at least one assistant turn",
            )
        return tokens, mask

    def continuation(self, messages: Sequence[Message], thinking: bool = True) -> list[int]:
        """The tokens between a finished assistant turn (its end included there) and the next one's first token.

        `messages` are the turns in between: tool results, or what the user says next.
        """
        opening = [Message("user", "."), Message("assistant", PROBE)]
        rendering = _Rendering(self, [*opening, *messages], None, thinking)
        text = rendering.prompt(len(opening) + len(messages))
        # Not found by that turn's prompt: a template that opens a trace for the model prints none before an answer without one.
        for found in self._structure.finditer(text, text.find(PROBE)) if PROBE in text else ():
            if self.tokenizer.special[found[0]] == self.turn_end:
                return self._encode(text[found.end() :], rendering)
        raise DataError(
            f"the chat template prints no {self.tokenizer.piece(self.turn_end)} after an answer that others follow",
            fix="use a template that ends every assistant turn",
        )

    @cached_property
    def turn_end(self) -> int:
        """The token with which the model ends its turn."""
        probe = [Message("user", "."), Message("assistant", PROBE), Message("user", ".")]
        text = _Rendering(self, probe, None, True).whole()
        found = self._structure.search(text, text.find(PROBE) + len(PROBE))
        if PROBE not in text or found is None:
            raise ArtifactError(
                "the chat template prints no special token after an answer: the model would never stop",
                fix="let the template print the token that ends a turn, and add it to the tokenizer as a special token",
            )
        return self.tokenizer.special[found[0]]

    @cached_property
    def stop_tokens(self) -> tuple[int, ...]:
        """The tokens at which sampling stops: the end of a turn, and the model's own ends of a text."""
        return tuple(dict.fromkeys([self.turn_end, *self.tokenizer.ends]))

    def parse(self, tokens: Sequence[int]) -> Message:
        """The assistant turn that the sampled `tokens` spell; what is malformed is reported in `problems`.

        The tokens are those after the generation prompt, the end of the turn included. Structure is read from
        special ids only, so that text that merely looks like a tag is content.
        """
        special, name = self.tokenizer.special, self.tokenizer.piece(self.turn_end)
        message = Message("assistant")
        tokens = list(tokens)
        if self.turn_end in tokens:
            end = tokens.index(self.turn_end)
            if end + 1 < len(tokens):
                message.problems.append(f"{len(tokens) - end - 1} tokens after {name}")
            tokens = tokens[:end]
        else:
            message.problems.append(f"no {name}: the turn is cut off")
        if tokens and tokens[0] == special.get(THINK_START):
            trace, tokens = self._until(tokens[1:], THINK_END, message)
            message.thinking = self._text(trace, "thinking", message)
        content: list[int] = []
        while special.get(TOOL_CALL_START) in tokens:
            start = tokens.index(special[TOOL_CALL_START])
            if message.tool_calls and start > 0:
                message.problems.append("text between tool calls")
            content += tokens[:start]
            call, tokens = self._until(tokens[start + 1 :], TOOL_CALL_END, message)
            self._parse_call(self._text(call, "tool call", message), message)
        if message.tool_calls and tokens:
            message.problems.append("text after the last tool call")
        message.content = self._text(content + tokens, "content", message)
        return message

    def _until(self, tokens: list[int], name: str, message: Message) -> tuple[list[int], list[int]]:
        """What stands before and after the first special token `name`; a missing one is a problem."""
        id = self.tokenizer.token(name)
        if id not in tokens:
            message.problems.append(f"{name} is missing")
            return tokens, []
        return tokens[: tokens.index(id)], tokens[tokens.index(id) + 1 :]

    def _text(self, tokens: list[int], part: str, message: Message) -> str:
        """The text of a part, in which no special token may stand; stray ones are dropped and reported."""
        present = set(tokens)
        stray = [name for name, id in self.tokenizer.special.items() if id in present]
        if stray:
            message.problems.append(f"stray {', '.join(stray)} in the {part}")
        data = self.tokenizer.decode_bytes(tokens, skip_special=True)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            message.problems.append(f"the {part} is not valid UTF-8")
            return data.decode("utf-8", errors="replace")

    @staticmethod
    def _parse_call(text: str, message: Message) -> None:
        try:
            value = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:  # ValueError: also a number of thousands of digits
            message.problems.append(f"a tool call is not JSON: {error}")
            return
        if (
            not isinstance(value, dict)
            or set(value) != {"name", "arguments"}
            or not isinstance(value["name"], str)
            or not isinstance(value["arguments"], dict)
        ):
            message.problems.append('a tool call is not {"name": text, "arguments": mapping}')
            return
        message.tool_calls.append(ToolCall(value["name"], value["arguments"]))

    def _tokens_and_mask(self, text: str, rendering: _Rendering) -> tuple[list[int], list[int]]:
        """The tokens of rendered text, each assistant turn encoded by itself, and 1 for those that the model writes."""
        cuts = [0]
        for number in rendering.assistant_turns:
            cuts += self._turn(text, rendering, number)
        tokens: list[int] = []
        mask: list[int] = []
        for index, (start, end) in enumerate(pairwise([*cuts, len(text)])):
            part = self._encode(text[start:end], rendering)
            tokens += part
            mask += [index % 2] * len(part)
        return tokens, mask

    def _turn(self, text: str, rendering: _Rendering, number: int) -> tuple[int, int]:
        """Where the assistant turn `number` begins and ends in the rendered `text`."""
        prompt = rendering.prompt(number)
        if not text.startswith(prompt):
            raise DataError(
                "the chat template renders the turns before this one differently once it is there, so its prompt is no "
                "prefix of the conversation",
                place=f"message {number}",
                fix="end the conversation with this turn, or use a template that prints the same text before an "
                "assistant turn as add_generation_prompt prints",
            )
        for found in self._structure.finditer(text, len(prompt)):
            if self.tokenizer.special[found[0]] == self.turn_end:
                return len(prompt), found.end()
        raise DataError(
            f"the chat template prints no {self.tokenizer.piece(self.turn_end)} after this turn: the model would not "
            "learn to stop",
            place=f"message {number}",
            fix="use a template that ends every assistant turn",
        )

    def _encode(self, text: str, rendering: _Rendering) -> list[int]:
        """Tokens of rendered text. The text between two special tokens is encoded at once."""
        tokens: list[int] = []
        position, strip_next = 0, False
        for found in self._structure.finditer(text):
            id = self.tokenizer.special[found[0]]
            strips_before, strips_after = self.tokenizer.strips(id)
            tokens += self._encode_plain(rendering.show(text[position : found.start()]), strip_next, strips_before)
            tokens.append(id)
            position, strip_next = found.end(), strips_after
        return tokens + self._encode_plain(rendering.show(text[position:]), strip_next, False)

    def _encode_plain(self, text: str, strip_left: bool, strip_right: bool) -> list[int]:
        text = text.lstrip() if strip_left else text
        text = text.rstrip() if strip_right else text
        return self.tokenizer.encode(text) if text else []

    def _check_encoding(self) -> None:
        """Refuse a tokenizer that encodes a text after a special token differently from the same text alone."""
        if self.tokenizer.byte_level or not self._names:
            return
        whole = type(self.tokenizer.backend).from_str(self.tokenizer.backend.to_str())
        text = f"{self._names[-1]}user\nHi, who?{self._names[-1]}\n"
        ids = whole.encode(text, add_special_tokens=False).ids
        if self._encode(text, _Rendering(self, [], None, True)) != ids:
            raise ArtifactError(
                "the tokenizer encodes a text that follows a special token differently from the same text alone (it puts a "
                "blank before the first word only)",
                fix="such a model can be loaded and trained on plain text, but Ingot cannot use its chat template",
            )


class _Rendering:
    """One conversation on its way through the template: every prefix of it in the same disguise."""

    def __init__(
        self, chat: ChatFormat, messages: Sequence[Message], tools: Sequence[dict[str, Any]] | None, thinking: bool
    ) -> None:
        special = chat.tokenizer.special
        for number, message in enumerate(messages):
            _check_message(message, number, thinking, special)
        if tools and TOOL_CALL_START not in special:
            raise DataError(f"tools for a model without {TOOL_CALL_START}", fix="leave the tools out")
        self._template, self._names = chat._template, chat.tokenizer.names
        self._messages = [_for_template(message) for message in messages]
        self.assistant_turns = [number for number, message in enumerate(messages) if message.role == "assistant"]
        wrapped = [tool if "function" in tool else {"type": "function", "function": tool} for tool in tools or ()]
        self._values: dict[str, Any] = {"tools": wrapped or None, "enable_thinking": thinking}
        self._disguise = Disguise(chat._names, [self._messages, wrapped])

    def whole(self) -> str:
        """The whole conversation."""
        return self._render(len(self._messages), generation_prompt=False)

    def prompt(self, turns: int) -> str:
        """The first `turns` messages and the generation prompt."""
        return self._render(turns, generation_prompt=True)

    def show(self, text: str) -> str:
        """A part of the rendered text as it is."""
        return str(self._disguise.show(text))

    def _render(self, turns: int, generation_prompt: bool) -> str:
        values = {**self._values, "messages": self._messages[:turns], "add_generation_prompt": generation_prompt}
        return self._template.render(self._disguise, values, self._names)


def _for_template(message: Message) -> dict[str, Any]:
    """The message with its trace under both names that templates use."""
    value = message.to_dict()
    return value | ({"reasoning_content": message.thinking} if message.thinking is not None else {})


def _refuse_constant(name: str) -> NoReturn:
    """Python's reader takes NaN and Infinity, which are not JSON."""
    raise ValueError(f"{name} is not a JSON value")


def _check_message(message: Message, number: int, thinking: bool, special: Mapping[str, int]) -> None:
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
    for part, name in ((message.thinking is not None, THINK_START), (bool(message.tool_calls), TOOL_CALL_START)):
        if part and name not in special:
            raise DataError(
                f"a turn that needs {name}, for a model without this token",
                place=place,
                fix="drop the trace with message.without_thinking(), the calls, or choose a model that has them",
            )
