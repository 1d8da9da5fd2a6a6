"""The blanks that a template prints around the parts of a turn, and a turn put together from its parts without them.

Qwen 3 writes `<think>\\nTRACE\\n</think>\\n\\nANSWER\\n<tool_call>`: the line breaks are its own and not the message's. They are
found by rendering a turn whose parts are known.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ingot.tokens.calls import read_call
from ingot.tokens.message import Message, ToolCall
from ingot.tokens.syntax import Syntax
from ingot.tokens.turn import Part

PROBE, PROBE_TRACE = "a probing answer", "a probing trace"


@dataclass(frozen=True)
class Layout:
    """The blanks around a trace and before a call."""

    after_start: str = ""  # of a trace
    before_end: str = ""
    after_end: str = ""
    before_call: str = ""


def find_layout(syntax: Syntax, render: Callable[[Message], str]) -> Layout:
    """The layout of a template that renders a turn as `render` does."""
    found = Layout()
    if syntax.think is not None:
        start, end = map(re.escape, syntax.think)
        text = render(Message("assistant", PROBE, PROBE_TRACE))
        around = re.search(rf"{start}(\s*){PROBE_TRACE}(\s*){end}(\s*){PROBE}", text)
        found = Layout(*around.groups()) if around else found
    if syntax.call is not None:
        text = render(Message("assistant", PROBE, tool_calls=[ToolCall("probe", {})]))
        before = re.search(rf"{PROBE}(\s*){re.escape(syntax.call[0])}", text)
        found = dataclasses.replace(found, before_call=before[1] if before else "")
    return found


def put_together(parts: Iterable[Part], message: Message, layout: Layout, syntax: Syntax) -> Message:
    """The message with the parts of its turn; what is wrong with a call is added to its problems."""
    call, called = "", False
    for part in parts:
        if part.section == "thinking":
            message.thinking = (message.thinking or "") + part.text
        elif part.section == "call":
            called, call = True, call + part.text
            if part.ends:
                _add_call(call, message, syntax)
                call = ""
        elif not called or part.text.strip():  # blanks behind a call are layout
            message.content += part.text
    if message.thinking is not None:
        message.thinking = message.thinking.removeprefix(layout.after_start).removesuffix(layout.before_end)
        message.content = message.content.removeprefix(layout.after_end)
    if called:
        message.content = message.content.removesuffix(layout.before_call)
    return message


def _add_call(text: str, message: Message, syntax: Syntax) -> None:
    call = read_call(text)
    if isinstance(call, ToolCall):
        message.tool_calls.append(call)
    elif syntax.bare:  # an answer that begins like a call
        message.content += text
    else:
        message.problems.append(call)
