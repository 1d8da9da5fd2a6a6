"""The original templates of published models: the format is found, and messages that they render are read back.

Those that TRL carries are always there. Others are read from a folder of Jinja files (llama.cpp's `models/templates`, for one):
`shared/data/chat_templates` beside the repository, or $INGOT_CHAT_TEMPLATES.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

import pytest
import trl

from ingot.tokens.chat import ChatFormat
from ingot.tokens.message import Message, ToolCall
from ingot.workspace.errors import DataError
from tests.conftest import SHARED_DATA
from tests.tokens.formats.wires import SPECIAL, make_tokenizer, sampled

TRL = Path(trl.__file__).parent / "chat_templates"
OTHERS = Path(os.environ.get("INGOT_CHAT_TEMPLATES", SHARED_DATA / "chat_templates"))
CHATML = ["<tool_response>", "</tool_response>"]
DEEPSEEK = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"] + [
    f"<｜tool▁{word}｜>" for word in ("outputs▁begin", "outputs▁end", "output▁begin", "output▁end")
]
GLM = ["[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"]
GEMMA = [
    "<bos>",
    "<eos>",
    "<|turn>",
    "<turn|>",
    "<|tool>",
    "<tool|>",
    "<|tool_response>",
    "<tool_response|>",
    "<|think|>",
]
LLAMA = ["<|begin_of_text|>", "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>"]
KIMI = ["<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>"]
MISTRAL = [
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
]

ANSWER, TRACE, CALL, CALLS, BOTH, THOUGHT = (
    "an answer",
    "a trace",
    "a call",
    "two calls",
    "text and a call",
    "a trace and a call",
)
EVERYTHING = frozenset({ANSWER, TRACE, CALL, CALLS, BOTH, THOUGHT})
UNTHINKING = EVERYTHING - {TRACE, THOUGHT}
ARGUMENTS = {
    "city": '東京 "x"</parameter> 42',
    "zip": "0042",
    "days": [1, 2],
    "number": 3,
    "flag": True,
    "object": {"a": "b", "n": None},
}
WEATHER, CLOCK = ToolCall("weather", ARGUMENTS), ToolCall("clock", {})
TURNS = {
    ANSWER: Message("assistant", "It is 4."),
    TRACE: Message("assistant", "It is 4.", "hm, 2+2"),
    CALL: Message("assistant", "", None, [WEATHER]),
    CALLS: Message("assistant", "", None, [WEATHER, CLOCK]),
    BOTH: Message("assistant", "Let me see.", None, [WEATHER]),
    THOUGHT: Message("assistant", "", "hm", [CLOCK]),
}
TYPES = {"city": "string", "zip": "string", "days": "array", "number": "integer", "flag": "boolean", "object": "object"}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather.",
            "parameters": {
                "type": "object",
                "properties": {name: {"type": type_, "description": name} for name, type_ in TYPES.items()},
                "required": ["city"],
            },
        },
    },
    {
        "type": "function",
        "function": {"name": "clock", "description": "The time.", "parameters": {"type": "object", "properties": {}}},
    },
]


class Original(NamedTuple):
    """A template: its file, its format, the tokens of its turns, and the turns that it prints in full."""

    path: Path
    label: str
    special: list[str]
    prints: frozenset[str] = EVERYTHING
    learns: bool = True  # its history begins each turn as its prompt does


ORIGINALS = [
    Original(TRL / "qwen3.jinja", "tags", CHATML),
    Original(TRL / "qwen3_instruct_2507.jinja", "tags", CHATML, UNTHINKING),
    Original(TRL / "qwen3_5_think.jinja", "qwen3_coder", CHATML),
    Original(TRL / "nemotron_3_nano.jinja", "qwen3_coder", CHATML, learns=False),
    Original(TRL / "glm4moe.jinja", "glm45", GLM),
    Original(TRL / "deepseekv3.jinja", "deepseek_v3", DEEPSEEK, UNTHINKING, learns=False),
    Original(TRL / "gemma4_v5.jinja", "gemma4", GEMMA, EVERYTHING - {BOTH}),  # it prints text behind the call
    Original(TRL / "lfm2_v2.jinja", "lfm2", CHATML, UNTHINKING),
    Original(TRL / "llama3_1.jinja", "llama3", LLAMA, frozenset({ANSWER, CALL})),
    Original(TRL / "llama3_2.jinja", "llama3", LLAMA, frozenset({ANSWER, CALL})),
    Original(TRL / "gptoss.jinja", "harmony", [], EVERYTHING - {CALLS, BOTH}),
    Original(OTHERS / "GLM-4.6.jinja", "glm45", GLM),
    Original(OTHERS / "moonshotai-Kimi-K2.jinja", "kimi_k2", KIMI, UNTHINKING),
    Original(OTHERS / "deepseek-ai-DeepSeek-V3.1.jinja", "deepseek_v31", DEEPSEEK, UNTHINKING),
    Original(OTHERS / "deepseek-ai-DeepSeek-V3.2.jinja", "deepseek_v32", DEEPSEEK),
    Original(OTHERS / "deepseek-ai-DeepSeek-V4.jinja", "deepseek_v4", DEEPSEEK),
    Original(OTHERS / "MiniMax-M2.jinja", "minimax_m2", ["]~!b[", "]~b]", "[e~["], frozenset({TRACE, THOUGHT})),
    Original(OTHERS / "Qwen3-Coder.jinja", "qwen3_coder", CHATML, UNTHINKING),
    Original(OTHERS / "ByteDance-Seed-OSS.jinja", "seed_oss", ["<seed:bos>", "<seed:eos>"]),
    Original(OTHERS / "mistralai-Mistral-Nemo-Instruct-2407.jinja", "mistral_list", MISTRAL, UNTHINKING - {BOTH}),
    Original(OTHERS / "Mistral-Small-3.2-24B-Instruct-2506.jinja", "mistral", MISTRAL, UNTHINKING - {BOTH}),
    Original(OTHERS / "mistralai-Ministral-3-14B-Reasoning-2512.jinja", "mistral", MISTRAL, UNTHINKING),
]


def chat_of(original: Original) -> ChatFormat:
    if not original.path.is_file():
        pytest.skip(f"the published template {original.path.name} is not on this machine")
    ends = {"<｜end▁of▁sentence｜>", "</s>", "<seed:eos>"} & set(original.special)
    starts = {"<｜begin▁of▁sentence｜>", "<s>", "<bos>", "<seed:bos>", "<|begin_of_text|>"} & set(original.special)
    names = {"eos_token": next(iter(ends), "<|im_end|>"), **({"bos_token": next(iter(starts))} if starts else {})}
    text = original.path.read_text(encoding="utf-8")
    return ChatFormat(make_tokenizer([*SPECIAL[original.label], *original.special], text, **names))


@pytest.mark.parametrize("original", ORIGINALS, ids=lambda original: original.path.stem)
def test_what_an_original_template_wrote_is_read_back(original: Original) -> None:
    chat = chat_of(original)
    assert chat.syntax.label == original.label
    for name, turn in TURNS.items():
        asked = [Message("user", "How is it?"), turn]
        try:
            tokens, mask = chat.conversation(asked, TOOLS)
        except DataError as error:
            assert name not in original.prints or ("not a prefix" in error.problem and not original.learns), name
            if name not in original.prints:
                continue
            rendering = chat.rendering(asked, TOOLS)
            turn_text = rendering.show(rendering.whole()).partition("How is it?")[2]  # behind the assistant's own mark
            written = sampled(chat, re.split(r"ssistant(?:｜>|\n)", turn_text)[1])
            written = written[: 1 + next(index for index, id in enumerate(written) if id in chat.turn_ends)]
            found = chat.parse(written, tools=TOOLS)
        else:
            first = mask.index(1)
            written = [token for token, one in zip(tokens, mask, strict=True) if one]
            found = chat.parse(written, chat.opens_trace(tokens[:first]), tools=TOOLS)
        found.thinking = found.thinking or None  # an empty trace is how Qwen 3 and GLM write none
        if name in original.prints:
            assert found == turn, name


@pytest.mark.parametrize(
    "original", [each for each in ORIGINALS if each.learns], ids=lambda original: original.path.stem
)
def test_every_learnt_turn_ends_as_the_model_stops(original: Original) -> None:
    """With several turns: what is learnt are turns as the model writes them, each with the token at which sampling stops."""
    chat = chat_of(original)
    thinks = TRACE in original.prints
    turns = [TURNS[THOUGHT] if thinks else TURNS[CALL], TURNS[TRACE] if thinks else TURNS[ANSWER]]
    asked = [Message("user", "How is it?"), turns[0], Message("tool", "12"), turns[1]]
    tokens, mask = chat.conversation(asked, TOOLS)
    assert chat.tokenizer.decode(tokens).count("How is it?") == 1
    runs = [index for index in range(len(mask)) if mask[index] and (index + 1 == len(mask) or not mask[index + 1])]
    assert runs and all(tokens[index] in chat.stop_tokens for index in runs)
    start = max(index for index in range(len(mask)) if mask[index] and not mask[index - 1])
    found = chat.parse(tokens[start : runs[-1] + 1], chat.opens_trace(tokens[:start]), tools=TOOLS)
    assert (found.content, found.thinking or None, found.problems) == (turns[1].content, turns[1].thinking, [])
