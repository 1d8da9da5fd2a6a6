"""What models write wrongly: every case ends in a named state, keeps its text, and raises nothing."""

from __future__ import annotations

import pytest

from ingot.tokens.call_reader import CallOutcome
from ingot.tokens.chat import ChatFormat
from ingot.tokens.message import Message, ToolCall
from ingot.tokens.template_files import template_text
from ingot.tokens.turn import TurnReader
from tests.tokens.formats.test_formats import CHATS, TOOLS
from tests.tokens.formats.wires import SPECIAL, make_tokenizer, sampled

F = [ToolCall("f", {"number": 1})]
CASES: list[tuple[str, str, str, list[ToolCall]]] = [
    # the turn ends inside a call
    ("tags", '<tool_call>{"name": "f", "arguments": {"number": 1', "truncated", []),
    ("tags", '<tool_call>{"name": "f", "arguments": {"number": 1}}', "missing_end", F),
    ("glm45", "<tool_call>f\n<arg_key>number</arg_key>\n<arg_value>1", "truncated", []),
    ("glm45", "<tool_call>f\n<arg_key>number</arg_key>\n<arg_value>1</arg_value>", "missing_end", F),
    ("glm45", "<tool_call>f", "truncated", []),
    ("kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0", "truncated", []),
    ("deepseek_v31", '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"number": 1}', "missing_end", F),
    ("mistral", '[TOOL_CALLS]f[ARGS]{"number": 1}', "complete", F),  # its calls have no end of their own
    ("mistral", '[TOOL_CALLS]f[ARGS]{"number": 1', "malformed", []),
    ("gemma4", "<|tool_call>call:f{number:1", "truncated", []),
    ("minimax_m2", '<minimax:tool_call><invoke name="f"><parameter name="number">1', "truncated", []),
    ("olmo3", "<function_calls>f(number=1", "truncated", []),
    # the mark of the section comes before that of the call
    (
        "kimi_k2",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>"
        '{"number": 1}<|tool_calls_section_end|>',
        "missing_end",
        F,
    ),
    ("qwen3_coder", "<tool_call><function=f><parameter=number>1</tool_call>", "truncated", []),
    # what cannot be read
    ("tags", "<tool_call>{'name': 'f'}</tool_call>", "malformed", []),
    ("tags", "<tool_call></tool_call>", "malformed", []),
    ("kimi_k2", "<|tool_calls_section_begin|><|tool_calls_section_end|>", "malformed", []),
    (
        "deepseek_v31",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>[1]<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "malformed",
        [],
    ),
    ("deepseek_v31", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜><｜tool▁sep｜>{}<｜tool▁call▁end｜>", "malformed", []),
    ("lfm2", "<|tool_call_start|>[f(1)]<|tool_call_end|>", "malformed", []),
    ("lfm2", "<|tool_call_start|>[f(number=open('x'))]<|tool_call_end|>", "malformed", []),
    ("mistral_list", "[TOOL_CALLS]nothing", "malformed", []),
    ("gemma4", "<|tool_call>call:f{number:}<tool_call|>", "malformed", []),
    # a tool that nobody offered
    ("glm45", "<tool_call>h</tool_call>", "unknown_tool", [ToolCall("h", {})]),
    # JSON where tags belong, as Qwen3-Coder sometimes writes
    ("qwen3_coder", '<tool_call><function=f>{"number": 1}</function></tool_call>', "complete", F),
]


def outcomes(label: str, text: str, marks: str = "tokens") -> list[CallOutcome]:
    chat = CHATS[label, marks]
    reader = TurnReader(chat.tokenizer, chat.syntax, tools=TOOLS)
    return [part.outcome for part in reader.read(sampled(chat, text)) if part.outcome is not None]


@pytest.mark.parametrize(("label", "text", "status", "calls"), CASES, ids=lambda value: str(value)[:40])
def test_broken_calls(label: str, text: str, status: str, calls: list[ToolCall]) -> None:
    [outcome] = outcomes(label, text)
    assert (outcome.status, [outcome.call] if outcome.call else []) == (status, calls)
    chat = CHATS[label, "tokens"]
    assert text in (
        outcome.written,
        outcome.written + (chat.syntax.closes("calls") or ""),
    )  # the section's end is no call's
    message = chat.parse([*sampled(chat, text), chat.turn_end], tools=TOOLS)
    assert message.tool_calls == calls and message.broken_calls == ([] if calls else [outcome.written])
    assert bool(message.problems) == (status not in ("complete", "unknown_tool"))


def parsed(label: str, text: str, marks: str = "tokens", in_thinking: bool = False) -> Message:
    chat = CHATS[label, marks]
    return chat.parse([*sampled(chat, text), chat.turn_end], in_thinking, tools=TOOLS)


CALL = '<tool_call>{"name": "f", "arguments": {"number": 1}}</tool_call>'


def test_one_broken_call_does_not_take_others_with_it() -> None:
    statuses = [each.status for each in outcomes("tags", f"{CALL}<tool_call>{{</tool_call>{CALL}")]
    assert statuses == ["complete", "malformed", "complete"]
    [first, second] = outcomes("tags", f'<tool_call>{{"name": "f"{CALL}')  # the first is not ended
    assert (first.status, second.status, second.call) == ("truncated", "complete", F[0])


def test_a_mark_in_a_trace() -> None:
    """As a token it ends the trace, as vLLM and renderers have it; as text it is what the model thinks of."""
    message = parsed("tags", f"<think>I could call{CALL}")
    assert (message.thinking, message.tool_calls) == ("I could call", F) and "</think> is missing" in message.problems
    message = parsed("tags", f"<think>I could call{CALL}</think>4", "text")
    assert (message.thinking, message.tool_calls, message.content) == (f"I could call{CALL}", [], "4")
    assert message.problems == ["stray <tool_call>, </tool_call> in the thinking"]


def test_a_mark_in_a_code_block() -> None:
    """Text that spells a mark is none where the model has a token for it; else what can be read as a call is one."""
    chat = CHATS["tags", "tokens"]
    text = f"Write\n```\n{CALL}\n```"
    message = chat.parse([*chat.tokenizer.encode(text), chat.turn_end])
    assert (message.content, message.tool_calls, message.problems) == (text, [], [])
    message = parsed("tags", "Write\n```\n<tool_call>…</tool_call>\n```", "text")
    assert message.broken_calls == ["<tool_call>…</tool_call>"] and message.content == "Write\n```\n\n```"


def test_an_answer_outside_of_every_channel() -> None:
    """As a model writes that has not learnt harmony yet."""
    chat = ChatFormat(make_tokenizer(SPECIAL["harmony"], template_text("harmony")))
    message = chat.parse([*chat.tokenizer.encode("It is 4."), chat.turn_end])
    assert message.content == "It is 4." and "no <|message|> after 'It is 4.'" in message.problems


def test_text_after_the_first_end_of_a_trace_is_the_answer() -> None:
    message = parsed("tags", "hm</think>4</think>5", in_thinking=True)
    assert (message.thinking, message.content) == ("hm", "45") and message.problems == ["stray </think> in the content"]
    message = parsed("tags", "hm</think>4</think>5", "text", in_thinking=True)
    assert (message.thinking, message.content) == ("hm", "4</think>5")


def test_text_between_and_behind_calls_is_kept() -> None:
    call = "<|tool_call_begin|>functions.g:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
    message = parsed("kimi_k2", f"<|tool_calls_section_begin|>{call} and {call}<|tool_calls_section_end|>done")
    assert [each.name for each in message.tool_calls] == ["g", "g"] and message.content == "anddone"
    assert set(message.problems) == {"text between tool calls", "text after a tool call"}


@pytest.mark.parametrize("label", [label for label, marks in CHATS if marks == "tokens"])
def test_what_a_user_writes_is_never_structure(label: str) -> None:
    """Every mark of the format in a message, an argument and a result: as many special tokens as without them."""
    chat = CHATS[label, "tokens"]
    marks = "".join(sorted(chat.tokenizer.special))

    def structure(text: str) -> list[int]:
        turns = [Message("user", text), Message("assistant", "", tool_calls=[ToolCall("f", {"text": text})])]
        tokens = chat.prompt([*turns, Message("tool", text), Message("user", "?")], TOOLS)
        return [token for token in tokens if token in chat.tokenizer.special.values()]

    assert structure(marks) == structure("plain")
