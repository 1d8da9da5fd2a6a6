"""Fifty conversations of every kind, drawn from a seed: what chat templates are compared on."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from ingot.tokens.message import Message, ToolCall

TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather of a city — today.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Its name."},
                    "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
                    "days": {"type": "array", "items": {"type": "integer"}},
                },
                "required": ["city"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "clock",
            "description": "The time.",
            "parameters": {"type": "object", "properties": {}},
        },
    },
]
WORDS = ["Is it", "über", "12 + 34?", "日本", "<b>bold</b>", "a\nnew line", "{x}", "yes", "  two blanks", 'a "quote"']


@dataclass
class Talk:
    """A conversation and what a template is given with it."""

    messages: list[Message]
    tools: list[dict[str, Any]] | None
    thinking: bool
    dicts: list[dict[str, Any]] = field(init=False)

    def __post_init__(self) -> None:
        self.dicts = [
            each.to_dict() | ({} if each.thinking is None else {"reasoning_content": each.thinking})
            for each in self.messages
        ]


def talks(count: int = 50, *, traces: bool = True, parallel: bool = True, text_with_calls: bool = True) -> list[Talk]:
    """The conversations; templates differ in whether they have traces, several calls a turn, and text beside a call."""
    return [_talk(random.Random(seed), traces, parallel, text_with_calls) for seed in range(count)]


def _talk(draw: random.Random, traces: bool, parallel: bool, text_with_calls: bool) -> Talk:
    thinking = draw.random() < 0.7
    tools = draw.choice([None, TOOLS[:1], TOOLS])
    messages = [Message("system", _words(draw))] if draw.random() < 0.5 else []

    def trace() -> str | None:
        return _words(draw) if traces and thinking and draw.random() < 0.7 else None

    for _ in range(draw.randint(1, 3)):
        messages.append(Message("user", _words(draw)))
        for _ in range(draw.randint(0, 2) if tools else 0):
            calls = [_call(draw) for _ in range(draw.randint(1, 2) if parallel else 1)]
            messages.append(
                Message("assistant", draw.choice(["", "Let me see."]) if text_with_calls else "", trace(), calls)
            )
            messages += [Message("tool", draw.choice(["15", '{"sky": "grey"}', "<error>"])) for _ in calls]
        messages.append(Message("assistant", _words(draw), trace()))
    return Talk(messages, tools, thinking)


def _words(draw: random.Random) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(1, 6))).strip()


def _call(draw: random.Random) -> ToolCall:
    if draw.random() < 0.3:
        return ToolCall("clock", {})
    return ToolCall("weather", {"city": draw.choice(["Bern", "東京", 'a "b"']), "days": [1, 2], "unit": None})
