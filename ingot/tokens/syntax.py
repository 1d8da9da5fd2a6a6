"""How a chat template writes the parts of an assistant turn: its trace, its tool calls, its answer.

| syntax | trace | tool call | templates |
|---|---|---|---|
| tags | `<think>…</think>` | `<tool_call>…</tool_call>`, JSON or Python inside | ingot, chatml, qwen3, smollm3, hermes4 |
| bare | none | the turn is `{"name": …, "parameters": …}` | llama3 |
| channels | `<|channel|>analysis<|message|>…<|end|>` | ` to=functions.NAME<|channel|>commentary<|message|>…<|call|>` | harmony |

A mark (a tag, `<|channel|>` …) is a special token where the tokenizer has one of this name. Otherwise it is plain text, which
any text can spell: a model without these tokens learns the format, but its answers can forge it.

The syntax is read off the template's source, so that a model from outside needs no setting.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from ingot.tokens.tokenizer import THINK_END, THINK_START, TOOL_CALL_END, TOOL_CALL_START

THINK = (THINK_START, THINK_END)
CALL = (TOOL_CALL_START, TOOL_CALL_END)
CHANNEL, MESSAGE, START = "<|channel|>", "<|message|>", "<|start|>"
CHANNEL_ENDS = ("<|end|>", "<|call|>", "<|return|>")
PYTHON_TAG = "<|python_tag|>"


@dataclass(frozen=True)
class Syntax:
    """The marks of a template. `bare`: a turn that is a JSON object with a name is a call; `channels`: harmony."""

    think: tuple[str, str] | None = None
    call: tuple[str, str] | None = None
    bare: bool = False
    channels: bool = False

    @classmethod
    def of(cls, source: str, special: Container[str] = ()) -> Syntax:
        """The syntax of a template; tags that are special tokens count even if the template itself prints none."""
        if CHANNEL in source and MESSAGE in source:
            return cls(channels=True)
        if PYTHON_TAG in source or ("<|eot_id|>" in source and '"parameters"' in source):
            return cls(bare=True)
        return cls(
            THINK if THINK_START in source or THINK_START in special else None,
            CALL if TOOL_CALL_START in source or TOOL_CALL_START in special else None,
        )

    @property
    def thinks(self) -> bool:
        """Whether a turn can have a trace."""
        return self.think is not None or self.channels

    @property
    def calls(self) -> bool:
        """Whether a turn can call tools."""
        return self.call is not None or self.bare or self.channels

    @property
    def marks(self) -> tuple[str, ...]:
        """Every mark, in the order in which a turn may have them."""
        if self.channels:
            return (CHANNEL, MESSAGE, START, *CHANNEL_ENDS)
        return (*((PYTHON_TAG,) if self.bare else ()), *(self.think or ()), *(self.call or ()))
