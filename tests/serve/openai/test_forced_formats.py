"""Forced calls in the format of the model: whatever is drawn from the grammar is read as a call that fits the tool's schema."""

from __future__ import annotations

import random
from typing import Any

import jsonschema
import numpy as np
import pytest

from ingot.inference.structure.constraint import compile_grammar
from ingot.serve.openai.errors import ApiError
from ingot.serve.openai.prompts import Prompt
from ingot.serve.openai.requests import ChatRequest
from ingot.serve.openai.structures import offered_tools, turn_structure
from ingot.tokens.chat import ChatFormat
from tests.tokens.formats.wires import make_chat

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "parameters": SCHEMA}},
    {
        "type": "function",
        "function": {"name": "clock", "parameters": {"type": "object", "additionalProperties": False}},
    },
]


def body(**options: Any) -> ChatRequest:
    messages = [{"role": "user", "content": "?"}]
    return ChatRequest.model_validate({"model": "m", "messages": messages, "tools": TOOLS, **options})


def grammar(chat: ChatFormat, request: ChatRequest) -> str:
    prompt = Prompt([], in_thinking=False, may_think=False)
    structure = turn_structure(chat.tokenizer, chat.syntax, request, offered_tools(request), prompt)
    assert structure is not None
    return structure.grammar


def drawn(chat: ChatFormat, text: str, draw: random.Random) -> list[int]:
    """Tokens drawn evenly from what the grammar allows, until the turn may end."""
    state, tokens = compile_grammar(text, chat.tokenizer).start(), list[int]()
    while not state.complete:
        tokens.append(draw.choice(np.flatnonzero(state.mask()).tolist()))
        state = state.advance(tokens[-1])
    return [*tokens, chat.turn_end]


@pytest.mark.parametrize("label", ["tags", "kimi_k2", "deepseek_v31", "mistral", "llama3"])
def test_a_forced_call_is_one_of_the_format(label: str) -> None:
    chat = make_chat(label)
    text = grammar(chat, body(tool_choice="required", parallel_tool_calls=False))
    named = set()
    for seed in range(8):
        message = chat.parse(drawn(chat, text, random.Random(seed)), tools=TOOLS)
        assert not message.problems and not message.content
        [call] = message.tool_calls
        named.add(call.name)
        jsonschema.validate(call.arguments, SCHEMA if call.name == "weather" else {"maxProperties": 0})
    assert named == {"weather", "clock"}


@pytest.mark.parametrize("label", ["glm45", "qwen3_coder", "minimax_m2", "gemma4", "lfm2"])
def test_what_cannot_be_held_to_a_form_is_refused(label: str) -> None:
    chat = make_chat(label)
    for option in ({"tool_choice": "required"}, {"parallel_tool_calls": False}):
        with pytest.raises(ApiError, match=f"calls in the format {label} cannot be held to a form"):
            grammar(chat, body(**option))
    prompt = Prompt([], in_thinking=False, may_think=False)
    request = body()
    assert turn_structure(chat.tokenizer, chat.syntax, request, offered_tools(request), prompt) is None
