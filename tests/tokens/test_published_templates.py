"""What is known of templates whose originals come with no package, written out by hand: SmolLM3's and Hermes 4's."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from ingot.tokens.template_files import template_text

HERMES_THINKS = (
    "You are a deep thinking AI, you may use extremely long chains of thought to deeply consider the problem and deliberate with "
    "yourself via systematic reasoning processes to help come to a correct solution prior to answering. You should enclose your "
    "thoughts and internal monologue inside <think> </think> tags, and then provide your solution or response to the problem."
)


def render(name: str, messages: list[dict[str, Any]], **options: Any) -> str:
    rendered, _ = render_jinja_template(conversations=[messages], chat_template=template_text(name), **options)
    return str(rendered[0])


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str, thinking: str | None = None) -> dict[str, Any]:
    return {"role": "assistant", "content": text, "thinking": thinking}


def smollm3(mode: str, instructions: str) -> str:
    """The head of a conversation."""
    today = datetime.now().strftime("%d %B %Y")
    return (
        f"<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\nToday Date: {today}\nReasoning Mode: /{mode}\n\n"
        f"## Custom Instructions\n\n{instructions}\n\n"
    )


@pytest.mark.parametrize("system", ["Be short. /no_think", "Be short."])
def test_smollm3_without_thinking(system: str) -> None:
    """By a word in the system turn, or by the option."""
    messages = [{"role": "system", "content": system}, user("2 + 2?"), assistant("4")]
    asked = {} if "/no_think" in system else {"enable_thinking": False}
    assert render("smollm3", messages, **asked) == (
        smollm3("no_think", "Be short.") + "<|im_end|>\n<|im_start|>user\n2 + 2?<|im_end|>\n"
        "<|im_start|>assistant\n<think>\n\n</think>\n4<|im_end|>\n"
    )
    prompt = render("smollm3", messages[:2], add_generation_prompt=True, **asked)
    assert prompt.endswith("<|im_start|>assistant\n<think>\n\n</think>\n")


def test_smollm3_with_tools_and_thinking() -> None:
    tool = {"type": "function", "function": {"name": "clock", "description": "The time.", "parameters": {}}}
    call = {
        "role": "assistant",
        "content": "",
        "thinking": "look",
        "tool_calls": [{"function": {"name": "clock", "arguments": {}}}],
    }
    messages = [{"role": "system", "content": "Be short."}, user("When?"), call, {"role": "tool", "content": "noon"}]
    assert render("smollm3", messages, tools=[tool]) == (
        smollm3("think", "Be short.")
        + "### Tools\n\nYou may call one or more functions to assist with the user query.\n"
        "You are provided with function signatures within <tools></tools> XML tags:\n\n<tools>\n"
        f"{tool}\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
        '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
        "\n\n<|im_end|>\n<|im_start|>user\nWhen?<|im_end|>\n<|im_start|>assistant\n<think>\nlook\n</think>\n<tool_call>\n"
        '{"name": "clock", "arguments": {}}\n</tool_call><|im_end|>\n<|im_start|>user\nnoon<|im_end|>\n'
    )


def test_smollm3_overridden() -> None:
    messages = [{"role": "system", "content": "You are a cat. /system_override"}, user("Who?")]
    assert render("smollm3", messages) == (
        "<|im_start|>system\nYou are a cat.<|im_end|>\n<|im_start|>user\nWho?<|im_end|>\n"
    )


@pytest.mark.parametrize(
    ("thinks", "system"), [(True, HERMES_THINKS), (False, "You are Hermes, created by Nous Research.")]
)
def test_hermes4_has_a_system_turn_of_its_own(thinks: bool, system: str) -> None:
    rendered = render("hermes4", [user("Who?")], enable_thinking=thinks, add_generation_prompt=True)
    assert rendered == (
        f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\nWho?<|im_end|>\n<|im_start|>assistant\n"
    )


def test_hermes4_empties_the_traces_of_earlier_answers() -> None:
    messages = [user("2 + 2?"), assistant("4", "two twos"), user("3 + 3?"), assistant("6", "two threes")]
    assert render("hermes4", messages).split("<|im_end|>\n", 1)[1] == (
        "<|im_start|>user\n2 + 2?<|im_end|>\n<|im_start|>assistant\n<think> </think>\n4<|im_end|>\n"
        "<|im_start|>user\n3 + 3?<|im_end|>\n<|im_start|>assistant\n<think>\ntwo threes\n</think>\n6<|im_end|>\n"
    )
    kept = render("hermes4", messages, keep_thinking=True)
    assert "<think>\ntwo twos\n</think>\n4" in kept and "<think> </think>\n" not in kept
