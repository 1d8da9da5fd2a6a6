"""The blanks that a template prints around the parts of a turn, and a turn put together from its parts without them.

Qwen 3 writes `<think>\\nTRACE\\n</think>\\n\\nANSWER\\n<tool_call>`: the line breaks are its own and not the message's. They are
found by rendering a turn whose parts are known.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ingot.tokens.call_reader import CallOutcome, TurnPart
from ingot.tokens.message import Message, ToolCall
from ingot.tokens.syntax import Syntax

PROBE, PROBE_TRACE = "a probing answer", "a probing trace"


@dataclass(frozen=True)
class Layout:
    """The blanks before a turn's text, around a trace and before a call."""

    start: str = ""
    before_trace: str = ""
    after_start: str = ""  # of a trace
    before_end: str = ""
    after_end: str = ""
    before_call: str = ""


def find_layout(syntax: Syntax, render: Callable[[Message, bool], str]) -> Layout:
    """The layout of a template that renders a turn, with or without thinking, as `render` does."""
    plain = re.match(rf"(\s*){PROBE}", render(Message("assistant", PROBE), False))
    found = Layout(plain[1] if plain else "")
    if syntax.think is not None:
        start, end = (re.escape(mark) for mark in syntax.think)
        head = r"[^\n]*\n" if "header" in syntax.states else ""  # gemma4 names its channel
        text = render(Message("assistant", PROBE, PROBE_TRACE), True)
        opened = rf"^(?:(\s*){start}{head})?"  # where the prompt has opened the trace, the turn begins inside it
        rest = rf"(\s*){PROBE_TRACE}(\s*){end}(\s*){PROBE}"
        around = re.search(opened + rest, text) or re.search(f"()(?:{start}{head})?{rest}", text)
        found = Layout(found.start, *around.groups(default="")) if around else found
    if syntax.openers:
        openers = "|".join(map(re.escape, syntax.openers))
        text = render(Message("assistant", PROBE, tool_calls=[ToolCall("probe", {})]), True)
        before = re.search(rf"{PROBE}(\s*)(?:{openers})", text)
        found = dataclasses.replace(found, before_call=before[1] if before else "")
    return found


def put_together(parts: Iterable[TurnPart], message: Message, layout: Layout, syntax: Syntax) -> Message:
    """The message with the parts of its turn; what is wrong with a call is added to its problems."""
    called = False
    for part in parts:
        if part.section == "thinking":
            message.thinking = (message.thinking or "") + part.text
        elif part.section == "content":
            if not called or part.text.strip():  # blanks behind a call are layout
                message.content += part.text
        else:
            called = True
            if part.outcome is not None:
                _add_call(part.outcome, message, syntax)
    if message.thinking is not None:
        message.thinking = message.thinking.removeprefix(layout.after_start).removesuffix(layout.before_end)
        message.content = message.content.removeprefix(layout.before_trace).removeprefix(layout.after_end)
    else:
        message.content = message.content.removeprefix(layout.start)
    if called:
        message.content = message.content.removesuffix(layout.before_call)
    return message


def _add_call(outcome: CallOutcome, message: Message, syntax: Syntax) -> None:
    if outcome.call is not None:
        message.tool_calls.append(outcome.call)
    elif syntax.bare and outcome.written.lstrip()[:1] in ("{", "["):  # an answer that begins like a call
        message.content += outcome.written
    else:
        message.broken_calls.append(outcome.written)
        message.problems.append(outcome.problem or "a tool call cannot be read")
