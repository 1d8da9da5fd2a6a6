"""Conversations as tokens: what the model reads, what it must write, and back.

The layout is the ChatML of `chat_template.jinja`:

    <|im_start|>user\\nTEXT<|im_end|>\\n<|im_start|>assistant\\n<think>TRACE</think>ANSWER<|im_end|>\\n

Invariants, each with a test:

* `prompt(messages[:k])` is an exact token prefix of `conversation(messages)` for every assistant turn k, because text
  is cut at the boundary between what is given and what is generated, and each part is encoded by itself.
* The assistant mask is 1 exactly on what the model writes. Without thinking the generation prompt itself supplies
  `<think></think>`, so these two are 0. A conversation whose mask is all zero is an error, never a silent no-op.
* Tokens are encoded once: `continuation` gives the tokens between two assistant turns, and sampled tokens are kept.
* No content can forge structure: see `ingot.tokens.template`.
* `parse` inverts an assistant turn.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args

from ingot.tokens.template import ChatTemplate, Run
from ingot.tokens.tokenizer import (
    TEMPLATE_FILE,
    THINK_END,
    THINK_START,
    TOOL_CALL_END,
    TOOL_CALL_START,
    TURN_END,
    Tokenizer,
)
from ingot.workspace.errors import ArtifactError, DataError

Role = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = get_args(Role)


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
        self.tokenizer = tokenizer
        self._template = ChatTemplate(tokenizer.chat_template)
        names = sorted(tokenizer.special, key=len, reverse=True)
        self._special_pattern = re.compile("(" + "|".join(map(re.escape, names)) + ")")
        self._check_template()

    def prompt(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] | None = None, thinking: bool = True
    ) -> list[int]:
        """The tokens of `messages` and the generation prompt: what the model is given to write the next turn."""
        return self._encode(self._render(messages, tools, thinking, generation_prompt=True))[0]

    def conversation(
        self, messages: Sequence[Message], tools: Sequence[dict[str, Any]] | None = None, thinking: bool = True
    ) -> tuple[list[int], list[int]]:
        """The tokens of a whole conversation and the mask: 1 on what the model writes in each assistant turn."""
        tokens, mask = self._encode(self._render(messages, tools, thinking, generation_prompt=False))
        if not any(mask):
            has_turn = any(message.role == "assistant" for message in messages)
            raise DataError(
                "the assistant mask is all zero: nothing would be learnt from this conversation",
                fix="mark the assistant's output with {% generation %} in the chat template"
                if has_turn
                else "give a conversation with at least one assistant turn",
            )
        return tokens, mask

    def continuation(self, messages: Sequence[Message], thinking: bool = True) -> list[int]:
        """The tokens between a finished assistant turn (its <|im_end|> included there) and the next one's first token.

        `messages` are the turns in between: tool results, or what the user says next.
        """
        opening = [Message("user", "."), Message("assistant", ".")]
        runs = self._render([*opening, *messages], None, thinking, generation_prompt=True)
        after = max(index for index, run in enumerate(runs) if run.generated) + 1
        return self._encode(runs[after:])[0]

    def parse(self, tokens: Sequence[int]) -> Message:
        """The assistant turn that the sampled `tokens` spell; what is malformed is reported in `problems`.

        The tokens are those after the generation prompt, the closing <|im_end|> included. Structure is read from
        special ids only, so that text which merely looks like a tag is content.
        """
        special = self.tokenizer.special
        message = Message("assistant")
        tokens = list(tokens)
        if special[TURN_END] in tokens:
            end = tokens.index(special[TURN_END])
            if end + 1 < len(tokens):
                message.problems.append(f"{len(tokens) - end - 1} tokens after {TURN_END}")
            tokens = tokens[:end]
        else:
            message.problems.append(f"no {TURN_END}: the turn is cut off")
        if tokens and tokens[0] == special[THINK_START]:
            trace, tokens = self._until(tokens[1:], THINK_END, message)
            message.thinking = self._text(trace, "thinking", message)
        content: list[int] = []
        while special[TOOL_CALL_START] in tokens:
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
        id = self.tokenizer.special[name]
        if id not in tokens:
            message.problems.append(f"{name} is missing")
            return tokens, []
        return tokens[: tokens.index(id)], tokens[tokens.index(id) + 1 :]

    def _text(self, tokens: list[int], part: str, message: Message) -> str:
        """The text of a part, in which no special token may stand; stray ones are dropped and reported."""
        stray = [name for name, id in self.tokenizer.special.items() if id in tokens]
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

    def _render(
        self,
        messages: Sequence[Message],
        tools: Sequence[dict[str, Any]] | None,
        thinking: bool,
        generation_prompt: bool,
    ) -> list[Run]:
        for number, message in enumerate(messages):
            _check_message(message, number, thinking)
        return self._template.render(
            {
                "messages": [message.to_dict() for message in messages],
                "tools": list(tools) if tools else None,
                "enable_thinking": thinking,
                "add_generation_prompt": generation_prompt,
            }
        )

    def _encode(self, runs: Sequence[Run]) -> tuple[list[int], list[int]]:
        """Tokens and mask. Text is encoded in one piece between special tokens and generation boundaries."""
        tokens: list[int] = []
        mask: list[int] = []
        for generated, group in groupby(runs, key=lambda run: run.generated):
            before = len(tokens)
            pending: list[str] = []
            for text, special in self._split(group):
                if special is None:
                    pending.append(text)
                    continue
                tokens += self._encode_text(pending)
                tokens.append(special)
                pending.clear()
            tokens += self._encode_text(pending)
            mask += [int(generated)] * (len(tokens) - before)
        return tokens, mask

    def _encode_text(self, parts: list[str]) -> list[int]:
        text = "".join(parts)
        return self.tokenizer.encode(text) if text else []

    def _split(self, runs: Iterator[Run]) -> Iterator[tuple[str, int | None]]:
        """Pieces of text and the special tokens that the template's own text spells."""
        for run in runs:
            if not run.literal:
                yield run.text, None
                continue
            for piece in self._special_pattern.split(run.text):
                if piece:
                    yield piece, self.tokenizer.special.get(piece)

    def _check_template(self) -> None:
        """Refuse a template that breaks the invariants on a small conversation, before anything is trained with it."""
        probe = [Message("user", "2+2?"), Message("assistant", "4"), Message("user", "3+3?"), Message("assistant", "6")]
        for thinking in (True, False):
            tokens, mask = self.conversation(probe, thinking=thinking)
            if self.tokenizer.special[TURN_END] not in [token for token, one in zip(tokens, mask, strict=True) if one]:
                raise ArtifactError(
                    f"the chat template does not let the model write {TURN_END}: it would never stop",
                    fix=f"write {TURN_END} as plain template text inside {{% generation %}}, not in an expression",
                )
            starts = [index for index, (left, right) in enumerate(pairwise([0, *mask])) if right > left]
            for turn, start in zip((1, 3), starts, strict=True):
                if self.prompt(probe[:turn], thinking=thinking) != tokens[:start]:
                    raise ArtifactError(
                        f"the chat template's prompt is no token prefix of the conversation (thinking={thinking})",
                        fix="print the same text before an assistant turn as add_generation_prompt prints",
                    )


def _refuse_constant(name: str) -> NoReturn:
    """Python's reader takes NaN and Infinity, which are not JSON."""
    raise ValueError(f"{name} is not a JSON value")


def _check_message(message: Message, number: int, thinking: bool) -> None:
    """Refuse what the template would render to something else than was meant."""
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
