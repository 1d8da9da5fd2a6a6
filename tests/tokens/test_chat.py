"""The chat format: masks, prefixes, safety, parsing; and agreement with transformers on the same template file."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from ingot.tokens.chat import ChatFormat, Message, ToolCall
from ingot.tokens.template_files import template_text
from ingot.tokens.tokenizer import SPECIAL_TOKENS, Tokenizer
from ingot.workspace.errors import ArtifactError, DataError

TOOLS: list[dict[str, Any]] = [
    {"name": "calculator", "description": "Evaluate an expression.", "parameters": {"expression": {"type": "string"}}},
    {"type": "function", "function": {"name": "clock", "description": "The time.", "parameters": {}}},
]
CALL = ToolCall("calculator", {"expression": "12*34"})
PLAIN = [
    Message("system", "Be brief."),
    Message("user", "Hi <b>"),
    Message("assistant", "Hello."),
    Message("user", "12*34?"),
    Message("assistant", "Let me see.", tool_calls=[CALL, ToolCall("clock", {})]),
    Message("tool", "408"),
    Message("tool", "12:00"),
    Message("assistant", "408"),
]
THOUGHT = [
    Message("user", "12*34?"),
    Message("assistant", "", thinking="I need the tool.\n", tool_calls=[CALL]),
    Message("tool", "408"),
    Message("assistant", "It is 408.", thinking=""),
]

hostile = st.lists(
    st.one_of(
        st.sampled_from(
            [
                *SPECIAL_TOKENS,
                "\x00",
                "\U00100000",
                "\U00100001",
                "<",
                ">",
                "{{ 1 }}",
                "{% generation %}",
                "\n",
                "assistant",
            ]
        ),
        st.text(max_size=6),
    ),
    max_size=6,
).map("".join)
names = st.one_of(hostile, st.sampled_from(["calculator", "clock"]))
values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**20), 10**20),
        st.floats(allow_nan=False, allow_infinity=False),
        hostile,
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(hostile, inner, max_size=3)),
    max_leaves=6,
)
calls = st.lists(st.builds(ToolCall, names, st.dictionaries(hostile, values, max_size=3)), max_size=3)
assistants = st.builds(Message, st.just("assistant"), hostile, st.one_of(st.none(), hostile), calls)
others = st.builds(Message, st.sampled_from(["user", "tool"]), hostile)
systems = st.builds(Message, st.just("system"), hostile)


@st.composite
def conversations(draw: st.DrawFn) -> list[Message]:
    """Any conversation that ends with an assistant turn, of hostile contents."""
    messages = draw(st.lists(systems, max_size=1))
    for _ in range(draw(st.integers(1, 3))):
        messages += draw(st.lists(others, min_size=1, max_size=2))
        messages.append(draw(assistants))
    return messages


def plain(messages: list[Message]) -> list[Message]:
    """The conversation for no-think mode."""
    return [message.without_thinking() for message in messages]


def marked(chat: ChatFormat, tokens: list[int], mask: list[int]) -> str:
    """The text with what the model writes in ⟦⟧."""
    text, inside = "", 0
    for token, one in zip(tokens, mask, strict=True):
        text += {(0, 1): "⟦", (1, 0): "⟧"}.get((inside, one), "") + chat.tokenizer.piece(token)
        inside = one
    return text + ("⟧" if inside else "")


def written(messages: list[Message], thinking: bool) -> list[str]:
    """What the model writes in each assistant turn, spelt out by hand from the contract."""
    texts = []
    for message in messages:
        if message.role == "assistant":
            trace = f"<think>{message.thinking}</think>" if thinking and message.thinking is not None else ""
            tool_calls = "".join(
                "<tool_call>"
                + json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
                + "</tool_call>"
                for call in message.tool_calls
            )
            texts.append(trace + message.content + tool_calls + "<|im_end|>")
    return texts


def test_layout_with_thinking(chat: ChatFormat) -> None:
    assert marked(chat, *chat.conversation(THOUGHT)) == (
        "<|im_start|>user\n12*34?<|im_end|>\n<|im_start|>assistant\n"
        "⟦<think>I need the tool.\n</think>"
        '<tool_call>{"name": "calculator", "arguments": {"expression": "12*34"}}</tool_call>'
        "<|im_end|>⟧\n<|im_start|>tool\n<tool_response>408</tool_response><|im_end|>\n<|im_start|>assistant\n"
        "⟦<think></think>It is 408.<|im_end|>⟧\n"
    )


def test_layout_without_thinking(chat: ChatFormat) -> None:
    assert marked(chat, *chat.conversation([*PLAIN[:4], Message("assistant", "408")], thinking=False)) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi <b><|im_end|>\n<|im_start|>assistant\n"
        "<think></think>⟦Hello.<|im_end|>⟧\n<|im_start|>user\n12*34?<|im_end|>\n<|im_start|>assistant\n"
        "<think></think>⟦408<|im_end|>⟧\n"
    )


def test_tools_are_declared_in_the_system_turn(chat: ChatFormat) -> None:
    first, second = TOOLS[0], TOOLS[1]["function"]
    declared = f"Tools:\n{json.dumps(first)}\n{json.dumps(second)}<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    alone = chat.tokenizer.decode(chat.prompt([Message("user", "Hi")], TOOLS))
    assert alone == f"<|im_start|>system\n{declared}<|im_start|>assistant\n"
    both = chat.tokenizer.decode(chat.prompt([Message("system", "Be brief."), Message("user", "Hi")], TOOLS))
    assert both == f"<|im_start|>system\nBe brief.\n{declared}<|im_start|>assistant\n"


@given(messages=conversations(), thinking=st.booleans(), tools=st.sampled_from([None, TOOLS]))
def test_every_invariant_on_hostile_conversations(
    chat: ChatFormat, messages: list[Message], thinking: bool, tools: list[dict[str, Any]] | None
) -> None:
    if not thinking:
        messages = plain(messages)
    special = chat.tokenizer.special
    tokens, mask = chat.conversation(messages, tools, thinking)

    # Structure: as many turns as messages (and a system turn for tools); contents add no special token.
    turns = len(messages) + (tools is not None and messages[0].role != "system")
    assert tokens.count(special["<|im_start|>"]) == tokens.count(special["<|im_end|>"]) == turns
    assert tokens.count(special["<tool_response>"]) == sum(message.role == "tool" for message in messages)
    assert tokens.count(special["</tool_call>"]) == sum(len(message.tool_calls) for message in messages)
    thoughts = [message for message in messages if message.role == "assistant"]
    opened = sum(message.thinking is not None for message in thoughts) if thinking else len(thoughts)
    assert tokens.count(special["<think>"]) == tokens.count(special["</think>"]) == opened
    known = {special[name] for name in SPECIAL_TOKENS[2:10]}
    assert not {token for token in tokens if token < 16} - known

    # Each run of ones is exactly what the model writes; the prompt before it is what `prompt` gives.
    edges = [index for index in range(1, len(mask) + 1) if (mask[index] if index < len(mask) else 0) != mask[index - 1]]
    spans = list(zip(edges[::2], edges[1::2], strict=True))
    places = [index for index, message in enumerate(messages) if message.role == "assistant"]
    expected = written(messages, thinking)
    assert len(spans) == len(places)
    for (start, end), place, text in zip(spans, places, expected, strict=True):
        assert chat.tokenizer.decode(tokens[start:end]) == text
        assert chat.prompt(messages[:place], tools, thinking) == tokens[:start]
        parsed = chat.parse(tokens[start:end])
        assert parsed == messages[place]

    # What stands between two assistant turns is the continuation.
    for (_, end), (start, _), place, following in zip(spans, spans[1:], places, places[1:], strict=False):
        assert chat.continuation(messages[place + 1 : following], thinking) == tokens[end:start]


@pytest.mark.parametrize("thinking", [True, False])
@pytest.mark.parametrize("tools", [None, TOOLS])
@pytest.mark.parametrize("messages", [PLAIN, THOUGHT])
def test_equal_to_transformers(
    chat: ChatFormat, messages: list[Message], tools: list[dict[str, Any]] | None, thinking: bool
) -> None:
    peer = PreTrainedTokenizerFast(tokenizer_object=chat.tokenizer.backend)
    # The peer finds special tokens by their names in the rendered text; ours keeps them apart, so the flag differs.
    peer.backend_tokenizer.encode_special_tokens = False
    peer.chat_template = template_text()
    if not thinking:
        messages = plain(messages)
    dicts = [message.to_dict() for message in messages]
    options: dict[str, Any] = {"tools": tools, "enable_thinking": thinking}
    try:
        text = peer.apply_chat_template(dicts, tokenize=False, **options)
        encoded = peer.apply_chat_template(dicts, return_dict=True, return_assistant_tokens_mask=True, **options)
        prompt = peer.apply_chat_template(dicts[:1], add_generation_prompt=True, return_dict=False, **options)
    finally:
        peer.backend_tokenizer.encode_special_tokens = True
        chat.tokenizer.backend.encode_special_tokens = True
    tokens, mask = chat.conversation(messages, tools, thinking)
    assert chat.tokenizer.decode(tokens) == text
    assert tokens == encoded["input_ids"]
    assert mask == encoded["assistant_masks"]
    assert chat.prompt(messages[:1], tools, thinking) == prompt


def test_what_comes_after_the_last_answer_is_not_learnt(chat: ChatFormat) -> None:
    tokens, mask = chat.conversation([*THOUGHT, Message("user", "Thanks.")])
    assert marked(chat, tokens, mask).endswith("It is 408.<|im_end|>⟧\n<|im_start|>user\nThanks.<|im_end|>\n")


def test_a_mask_of_zeros_is_an_error(chat: ChatFormat) -> None:
    with pytest.raises(DataError, match="all zero") as caught:
        chat.conversation([Message("user", "Hi")])
    assert "at least one assistant turn" in str(caught.value)


@pytest.mark.parametrize("messages", [PLAIN, THOUGHT])
def test_generation_blocks_are_not_needed(chat: ChatFormat, tokenizer: Tokenizer, messages: list[Message]) -> None:
    source = template_text()
    unmarked = source.replace("{%- generation %}\n", "").replace("{%- endgeneration %}\n", "")
    printed = unmarked.replace('"<|im_start|>', '"<|im_" ~ "start|>')
    assert printed != unmarked != source
    for template in (unmarked, printed):
        assert ChatFormat(Tokenizer(tokenizer.backend, template)).conversation(messages) == chat.conversation(messages)


@pytest.mark.parametrize("thinking", [True, False])
def test_a_conversation_goes_on_where_the_template_opens_the_trace(tokenizer: Tokenizer, thinking: bool) -> None:
    """As those of DeepSeek-R1 and QwQ do: the prompt of a turn is then not how a turn in the past begins."""
    head, ending = template_text().rsplit('("" if', 1)
    template = f'{head}("<think>" if{ending}'
    chat = ChatFormat(Tokenizer(tokenizer.backend, template))
    opened = "<think>" if thinking else "<think></think>"
    found = chat.continuation([Message("user", "And 2?")], thinking)
    expected = f"\n<|im_start|>user\nAnd 2?<|im_end|>\n<|im_start|>assistant\n{opened}"
    assert chat.tokenizer.decode(found) == expected
    assert found.count(tokenizer.special["<|im_start|>"]) == 2 and found.count(tokenizer.special["<think>"]) == 1


def test_templates_that_break_an_invariant_are_refused(tokenizer: Tokenizer) -> None:
    source = template_text()
    other_prompt = source.replace(
        '{%- if add_generation_prompt %}\n{{- "<|im_start|>"', '{%- if add_generation_prompt %}\n{{- "<|im_start|>a "'
    )
    assert other_prompt != source
    with pytest.raises(DataError, match=r"message 6: .* its prompt is not a prefix of the conversation"):
        ChatFormat(Tokenizer(tokenizer.backend, other_prompt)).conversation(PLAIN[1:])
    endless = ChatFormat(Tokenizer(tokenizer.backend, "{% for m in messages %}{{ m.content }}{% endfor %}"))
    with pytest.raises(ArtifactError, match="the model would never stop"):
        endless.conversation(PLAIN[:3])
    unless_last = "{% if add_generation_prompt or not loop.last %}<|im_end|>{% endif %}"
    source = "{% for m in messages %}{{ m.content }}" + unless_last + "{% endfor %}"
    between = ChatFormat(Tokenizer(tokenizer.backend, source))
    assert between.turn_end == tokenizer.special["<|im_end|>"]
    tokens, mask = between.conversation(
        [Message("user", ""), Message("assistant", "Hi")]
    )  # it ends as if others followed
    assert marked(between, tokens, mask) == "<|im_end|>⟦Hi<|im_end|>⟧"
    with pytest.raises(ArtifactError, match="no chat template"):
        ChatFormat(Tokenizer(tokenizer.backend, None))


def test_messages_that_cannot_be_rendered_as_meant(chat: ChatFormat) -> None:
    user = Message("user", "Hi")
    with pytest.raises(DataError, match="message 1: a thinking trace in a conversation with thinking=False"):
        chat.conversation([user, Message("assistant", "4", thinking="2+2")], thinking=False)
    with pytest.raises(DataError, match="message 1: a system turn after the first turn"):
        chat.prompt([user, Message("system", "x")])
    with pytest.raises(DataError, match="message 0: a user turn with thinking or tool calls"):
        chat.prompt([Message("user", "x", tool_calls=[CALL])])
    with pytest.raises(DataError, match="unknown role 'bot'"):
        chat.prompt([Message.from_dict({"role": "bot", "content": "x"})])


@given(message=st.one_of(assistants, others))
def test_messages_as_json(message: Message) -> None:
    assert Message.from_dict(json.loads(json.dumps(message.to_dict()))) == message


def sampled(chat: ChatFormat, text: str) -> list[int]:
    """Tokens of a text in which special names are special: what a model may sample."""
    special = chat.tokenizer.special
    pieces = re.split("(" + "|".join(map(re.escape, special)) + ")", text)
    return [id for piece in pieces for id in ([special[piece]] if piece in special else chat.tokenizer.encode(piece))]


CUT = "no <|im_end|>: the turn is cut off"
NO_CALL = 'a tool call is not {"name": text, "arguments": mapping}'
CALL_TEXT = '<tool_call>{"name": "b", "arguments": {}}'


def answer(content: str = "", thinking: str | None = None, *, calls: bool = False) -> Message:
    return Message("assistant", content, thinking, [ToolCall("b", {})] if calls else [])


@pytest.mark.parametrize(
    ("text", "expected", "problems"),
    [
        ("4<|im_end|>", answer("4"), []),
        ("4", answer("4"), [CUT]),
        ("", answer(), [CUT]),
        ("<think>a", answer("", "a"), [CUT, "</think> is missing"]),
        ("<think>a</think>b<think>c</think><|im_end|>", answer("b", "ac"), ["a trace after the answer began"]),
        ("a</think><|im_start|>b</think><|im_end|>", answer("ab"), ["stray </think>, <|im_start|> in the content"]),
        ("4<|im_end|>\n<|im_start|>", answer("4"), ["2 tokens after <|im_end|>"]),
        ("<tool_call>{}</tool_call><|im_end|>", answer(), [NO_CALL]),
        ('<tool_call>{"name": 1, "arguments": {}}</tool_call><|im_end|>', answer(), [NO_CALL]),
        (f"a{CALL_TEXT}<|im_end|>", answer("a", calls=True), ["</tool_call> is missing"]),
        (f"{CALL_TEXT}</tool_call>c<|im_end|>", answer("c", calls=True), ["text after a tool call"]),
    ],
)
def test_parse_reports_what_is_malformed(chat: ChatFormat, text: str, expected: Message, problems: list[str]) -> None:
    parsed = chat.parse(sampled(chat, text))
    assert parsed.problems == problems
    expected.problems = problems
    assert parsed == expected


@pytest.mark.parametrize("text", ["{", '{"name": "a", "arguments": {"x": NaN}}', "[" * 100_000, "1" * 5000])
def test_parse_survives_broken_json(chat: ChatFormat, text: str) -> None:
    parsed = chat.parse(sampled(chat, f"<tool_call>{text}</tool_call><|im_end|>"))
    assert parsed.tool_calls == []
    assert len(parsed.problems) == 1
    assert "a tool call is not" in parsed.problems[0]


@given(tokens=st.lists(st.integers(0, 699)))
def test_parse_never_raises(chat: ChatFormat, tokens: list[int]) -> None:
    assert chat.parse(tokens).role == "assistant"


def test_parse_reports_a_character_cut_in_two(chat: ChatFormat) -> None:
    half = chat.tokenizer.encode("€")[:1]
    parsed = chat.parse([*half, chat.tokenizer.special["<|im_end|>"]])
    assert parsed.problems == ["the content is not valid UTF-8"]
