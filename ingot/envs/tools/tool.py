"""A tool: what the model reads about it, and the function that answers a call.

A tool answers with text, always: what went wrong comes back as "error: …", which the model can read and act on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ingot.tokens.chat import ToolCall

LONGEST_RESULT = 20_000  # characters: a tool that prints a book must not fill the model's context
DEADLINE = 10.0  # seconds that a call may take, unless the user says otherwise
REFUSED = "error: the user did not allow this call"


@dataclass(frozen=True)
class Tool:
    """`schema` is an OpenAI function ({"name", "description", "parameters"}); `asks`: the user is asked before each call."""

    schema: dict[str, Any]
    run: Callable[[dict[str, Any]], str]
    asks: bool = True

    @property
    def name(self) -> str:
        """The name by which the model calls it."""
        return str(self.schema["name"])


def call_tool(tools: Mapping[str, Tool], call: ToolCall) -> str:
    """The answer to a call: the tool's text, cut where it is too long for a model to read."""
    if call.name not in tools:
        return f"error: there is no tool {call.name}; there are: {', '.join(tools) or 'none'}"
    result = tools[call.name].run(call.arguments)
    if len(result) <= LONGEST_RESULT:
        return result
    return f"{result[:LONGEST_RESULT]}\n… ({len(result) - LONGEST_RESULT:,} more characters were cut)"
