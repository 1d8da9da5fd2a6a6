"""The turns of a conversation: who says what, the trace before it, and the tools it calls."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Role = Literal["system", "developer", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = get_args(Role)


@dataclass
class ToolCall:
    """A call that the model asks for: the tool's name and its arguments by name."""

    name: str
    arguments: dict[str, Any]


@dataclass
class Message:
    """One turn. `thinking` None: no trace at all; "": an empty one.

    `problems`: what `parse` found malformed. `broken_calls`: calls that could not be read, as they were written.
    """

    role: Role
    content: str = ""
    thinking: str | None = None
    tool_calls: list[ToolCall] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    broken_calls: list[str] = field(default_factory=list, compare=False)

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
