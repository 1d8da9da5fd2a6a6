"""Verifiers: is the final answer right, and does the reply have the form that was asked for.

A verifier reads parsed messages and returns plain booleans; it never raises on what a model wrote, because every step
is a total function of its text (no `except` hides a fault of ours). An answer must be the whole content, not a part of
it: a reply that lists many numbers is not right because one of them is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal

from ingot.tokens.chat import Message

NUMBER = re.compile(r"[+-]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?", re.ASCII)
# Tags of the parts of a turn, and special tokens that are spelled out. `0<|x|` is mathematics.
MARK = re.compile(r"</?(?:think|tool_call|tool_response)>|<[|｜][\w▁]{3,}[|｜]>")
NUMBER_LENGTH_LIMIT = 64


def parse_number(text: str) -> Decimal | None:
    """The number that `text` consists of: thousands commas, one trailing period and outer space are allowed."""
    text = text.strip().removesuffix(".")
    if len(text) > NUMBER_LENGTH_LIMIT or not NUMBER.fullmatch(text):
        return None
    return Decimal(text.replace(",", ""))


def same_number(content: str, answer: str) -> bool:
    """True if `content` is the number `answer`, exactly."""
    number = parse_number(content)
    return number is not None and number == parse_number(answer)


def same_text(content: str, answer: str) -> bool:
    """True if `content` is `answer`, apart from outer space."""
    return content.strip() == answer


def final_content(messages: Sequence[Message]) -> str:
    """The content of the last message if that is an assistant's answer; empty otherwise."""
    if not messages or messages[-1].role != "assistant" or messages[-1].tool_calls:
        return ""
    return messages[-1].content


def format_ok(messages: Sequence[Message], thinking: bool) -> bool:
    """Every assistant turn is well formed, and the last one is a non-empty answer without a tool call.

    With thinking on, each turn has exactly one closed thinking block before everything else; with thinking off, none.
    """
    turns = [message for message in messages if message.role == "assistant"]
    return bool(turns) and bool(final_content(messages).strip()) and all(_turn_ok(turn, thinking) for turn in turns)


def _turn_ok(turn: Message, thinking: bool) -> bool:
    if turn.problems:
        return False
    if thinking and turn.thinking is None:
        return False
    if not thinking and turn.thinking is not None:
        return False
    text = (turn.thinking or "") + turn.content
    return MARK.search(text) is None
