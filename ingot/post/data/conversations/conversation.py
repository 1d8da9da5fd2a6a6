"""A conversation as a row of a user's file describes it: messages, tools, the mode of thinking, and what is learnt of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ingot.tokens.chat import Message


@dataclass(frozen=True)
class Conversation:
    """What a row says (row_forms.py). `thinking` None: the row does not say, and no message has a trace.

    `weights` has a number for each message: 0 keeps an assistant's turn out of the loss. `plain`: a text without a chat template,
    whose messages are printed one after the other (TRL's `text` and `prompt`/`completion` of strings). `row` is the row itself,
    for filters that read its other columns.
    """

    messages: list[Message]
    tools: list[dict[str, Any]] = field(default_factory=list)
    thinking: bool | None = None
    weights: list[float] = field(default_factory=list)
    plain: bool = False
    row: Mapping[str, Any] = field(default_factory=dict, compare=False)

    @property
    def answers(self) -> list[Message]:
        """The assistant's turns."""
        return [message for message in self.messages if message.role == "assistant"]

    @property
    def question(self) -> str:
        """What the user says, all turns of it."""
        return "\n".join(message.content for message in self.messages if message.role == "user")

    @property
    def text(self) -> str:
        """All that is said, for steps that look at documents: the roles' names are no part of it."""
        parts = [part for each in self.messages for part in (each.thinking, each.content) if part]
        return "\n\n".join(parts)

    def as_row(self) -> dict[str, Any]:
        """The row that reads back as this conversation (the form `messages`)."""
        messages = [message.to_dict() for message in self.messages]
        for message, weight in zip(messages, self.weights, strict=False):
            if weight == 0:
                message["weight"] = 0
        thinking = {} if self.thinking is None else {"thinking": self.thinking}
        return {"messages": messages} | ({"tools": self.tools} if self.tools else {}) | thinking


def in_mode(messages: Sequence[Message], thinking: bool) -> list[Message]:
    """Messages without traces in a mode of thinking: where it is on, a model that always opens a trace writes an empty one."""
    return [replace(each, thinking="") if thinking and each.role == "assistant" else each for each in messages]
