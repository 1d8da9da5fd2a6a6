"""The templates that come with Ingot: equal to the originals and to transformers, and read back by `parse`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
import trl
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from ingot.tokens.call_reader import TurnPart
from ingot.tokens.chat import ChatFormat
from ingot.tokens.message import Message, ToolCall
from ingot.tokens.template_files import template_names, template_options, template_text
from ingot.tokens.tokenizer import Tokenizer
from ingot.tokens.turn import TurnReader
from ingot.workspace.errors import RecipeError
from tests.tokens.conversations import TOOLS, Talk, talks
from tests.tokens.test_foreign import train

TURNS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|begin_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
]
HARMONY = ["<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|call|>", "<|return|>", "<|constrain|>"]
TAGS = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
LIMITS: dict[str, dict[str, bool]] = {
    "llama3": {"traces": False, "parallel": False, "text_with_calls": False},
    "harmony": {"parallel": False, "text_with_calls": False},
}
TRL = Path(trl.__file__).parent / "chat_templates"
ORIGINALS = {"qwen3": TRL / "qwen3.jinja", "llama3": TRL / "llama3_1.jinja", "harmony": TRL / "gptoss.jinja"}


@pytest.fixture(scope="module")
def tokenizers(rows: list[dict[str, object]]) -> dict[str, Tokenizer]:
    """One that has a token for each mark, and one that has them for turns only and spells the tags."""
    texts = [str(row["text"]) for row in rows[:60]]
    found = {}
    for name, special in (("tokens", [*TURNS, *HARMONY, *TAGS]), ("text", [*TURNS, *HARMONY])):
        config = json.dumps({"bos_token": "<|begin_of_text|>", "eos_token": "<|endoftext|>"}).encode()
        found[name] = Tokenizer(train(texts, special), None, {"tokenizer_config.json": config})
    return found


def chat_of(tokenizer: Tokenizer, template: str) -> ChatFormat:
    return ChatFormat(Tokenizer(tokenizer.backend, template, tokenizer.files))


class Peer:
    """transformers with a template."""

    def __init__(self, tokenizer: Tokenizer, template: str) -> None:
        backend = type(tokenizer.backend).from_str(tokenizer.backend.to_str())
        self._peer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<|begin_of_text|>")
        self._template = template

    def tokens(self, talk: Talk, turns: int | None = None) -> list[int]:
        """The whole conversation, or the prompt after so many turns."""
        found: list[int] = self._peer.apply_chat_template(
            talk.dicts if turns is None else talk.dicts[:turns],
            tools=talk.tools,
            chat_template=self._template,
            enable_thinking=talk.thinking,
            add_generation_prompt=turns is not None,
            return_dict=False,
        )
        return found


def assert_equal(chat: ChatFormat, peer: Peer, conversations: Sequence[Talk]) -> None:
    for talk in conversations:
        tokens, mask = chat.conversation(talk.messages, talk.tools, talk.thinking)
        last = peer.tokens(talk, len(talk.messages) - 1)
        whole = peer.tokens(talk)
        if whole[: len(last)] == last:
            assert tokens == whole
        else:  # harmony drops traces that the last turn was written after; it is learnt behind what it was written after
            assert tokens[: len(last)] == last and tokens[-8:] == whole[-8:]
            assert "<|channel|>" in (chat.tokenizer.chat_template or "")
        turn = next(number for number, message in enumerate(talk.messages) if message.role == "assistant")
        for number in {turn, len(talk.messages) - 1}:
            assert chat.prompt(talk.messages[:number], talk.tools, talk.thinking) == peer.tokens(talk, number)
        assert any(mask) and mask[-3:] != [0, 0, 0]


@pytest.mark.parametrize("marks", ["tokens", "text"])
@pytest.mark.parametrize("name", template_names())
def test_equal_to_transformers(tokenizers: dict[str, Tokenizer], name: str, marks: str) -> None:
    """Conversations and their first and last prompts, token for token, from the same file."""
    text, count = template_text(name), 50 if marks == "tokens" and name not in ORIGINALS else 5
    assert_equal(chat_of(tokenizers[marks], text), Peer(tokenizers[marks], text), talks(count, **LIMITS.get(name, {})))


def test_short_forms_equal_transformers(tokenizers: dict[str, Tokenizer]) -> None:
    text = template_text("ingot", {"assistant": "me", "call_style": "python", "tool_style": "signature"})
    assert_equal(chat_of(tokenizers["tokens"], text), Peer(tokenizers["tokens"], text), talks(50))


@pytest.mark.parametrize("name", ORIGINALS)
def test_equal_to_the_original(tokenizers: dict[str, Tokenizer], name: str) -> None:
    """The template of the published model, as TRL carries it."""
    original = ORIGINALS[name].read_text(encoding="utf-8")
    chat = chat_of(tokenizers["tokens"], template_text(name))
    assert_equal(chat, Peer(tokenizers["tokens"], original), talks(**LIMITS.get(name, {})))


def test_chatml_is_that_of_qwen2_5(tokenizers: dict[str, Tokenizer]) -> None:
    """Which prints a system turn of its own if there is none, and has no traces."""
    original = (Path(__file__).parent / "templates" / "qwen2_5.jinja").read_text(encoding="utf-8")
    conversations = [talk for talk in talks(120, traces=False) if talk.messages[0].role == "system"]
    assert len(conversations) >= 50
    chat = chat_of(tokenizers["tokens"], template_text("chatml"))
    assert_equal(chat, Peer(tokenizers["tokens"], original), conversations)


LETTERS = st.text(st.characters(exclude_characters="<>", exclude_categories=["Cs"]), max_size=12).filter(
    lambda text: text == text.strip()
)
NAMES = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
CALLS = st.builds(ToolCall, NAMES, st.dictionaries(NAMES, VALUES, max_size=3))


@st.composite
def turns(draw: st.DrawFn, name: str) -> Message:
    """A turn that the template can write."""
    limits = LIMITS.get(name, {})
    trace = draw(st.none() | LETTERS) if limits.get("traces", True) else None
    calls = draw(st.lists(CALLS, max_size=3 if limits.get("parallel", True) else 1))
    content = "" if calls and not limits.get("text_with_calls", True) else draw(LETTERS)
    if name in ("qwen3", "harmony"):
        trace = trace if trace or not calls else None  # an empty trace is the same as none there
    if name == "qwen3":
        trace = trace or ""  # the last turn always has one
    if name == "llama3" and not calls:
        content = content.strip("{")
    return Message("assistant", content, trace, calls)


@pytest.mark.parametrize("marks", ["tokens", "text"])
@pytest.mark.parametrize("name", [*template_names(), "python"])
def test_what_is_written_is_read_back(tokenizers: dict[str, Tokenizer], name: str, marks: str) -> None:
    text = template_text("ingot", {"call_style": "python"}) if name == "python" else template_text(name)
    chat = chat_of(tokenizers[marks], text)

    @settings(max_examples=20)
    @given(message=turns(name))
    def check(message: Message) -> None:
        tokens, mask = chat.conversation([Message("user", "?"), message])
        written = [token for token, one in zip(tokens, mask, strict=True) if one]
        assert chat.parse(written) == message

    check()


def joined(parts: Iterable[TurnPart]) -> list[TurnPart]:
    """The parts with the texts of a section put together."""
    made: list[TurnPart] = []
    for part in parts:
        if made and made[-1].section == part.section and not made[-1].ends:
            part = TurnPart(part.section, made.pop().text + part.text, part.ends)
        made.append(part)
    return made


@pytest.mark.parametrize("marks", ["tokens", "text"])
@pytest.mark.parametrize("name", template_names())
def test_parse_never_raises(tokenizers: dict[str, Tokenizer], name: str, marks: str) -> None:
    """Any tokens, with marks often and in any order, and ids that the tokenizer does not have. Read at once they mean what they
    mean token by token."""
    tokenizer = tokenizers[marks]
    chat = chat_of(tokenizer, template_text(name))
    spelt = [
        tokenizer.encode(tag) for tag in [*TAGS, '{"name": "f", "parameters":', "to=functions.f", "analysis", "f(x="]
    ]
    special = [[id] for id in tokenizer.special.values()]

    @settings(max_examples=20)
    @given(
        pieces=st.lists(st.sampled_from([*spelt, *special]) | st.lists(st.integers(0, 2000), max_size=4), max_size=12)
    )
    def check(pieces: list[list[int]]) -> None:
        tokens = [token for piece in pieces for token in piece]
        message = chat.parse(tokens)
        assert message.role == "assistant"
        json.dumps(message.to_dict())
        whole, single = (TurnReader(chat.tokenizer, chat.syntax) for _ in range(2))
        parts = [*(part for token in tokens for part in single.push(token)), *single.finish()]
        assert joined(whole.read(tokens)) == joined(parts)
        assert whole.problems == single.problems

    check()


def test_python_calls(tokenizers: dict[str, Tokenizer]) -> None:
    chat = chat_of(tokenizers["tokens"], template_text("ingot", {"call_style": "python"}))
    calls = [
        ToolCall("weather", {"city": "it's <b>", "days": [1, None, True]}),
        ToolCall("f", {"class": 1}),
        ToolCall("a b", {}),
    ]
    tokens, _ = chat.conversation([Message("user", "?"), Message("assistant", "", tool_calls=calls)])
    text = chat.tokenizer.decode(tokens).split("assistant\n")[1]
    assert text == (
        '<tool_call>weather(city="it\'s <b>", days=[1, None, True])</tool_call>'
        '<tool_call>{"name": "f", "arguments": {"class": 1}}</tool_call>'
        '<tool_call>{"name": "a b", "arguments": {}}</tool_call><|im_end|>\n'
    )


def test_signatures_tell_what_the_schemas_tell(tokenizers: dict[str, Tokenizer]) -> None:
    """A plain type by its name, any other schema whole, optional arguments with a question mark, the description behind."""
    chat = chat_of(tokenizers["tokens"], template_text("ingot", {"tool_style": "signature"}))
    plain = {"type": "object", "properties": {"expression": {"type": "string"}, "digits": {"type": "integer"}}}
    tools = [*TOOLS, {"name": "calculator", "parameters": plain}, {"name": "stop"}]
    text = chat.tokenizer.decode(chat.prompt([Message("user", "?")], tools))
    properties = TOOLS[0]["function"]["parameters"]["properties"]
    city, unit, days = (json.dumps(schema, ensure_ascii=False) for schema in properties.values())
    assert text.split("<|im_end|>")[0] == "\n".join(
        (
            "<|im_start|>system",
            "Tools:",
            f"weather(city: {city}, unit?: {unit}, days?: {days}) The weather of a city — today.",
            "clock() The time.",
            "calculator(expression: string, digits: integer)",
            "stop()",
        )
    )


@pytest.mark.parametrize(
    ("inside", "problem"),
    [
        ("weather(city='Bern', days=[1])", None),
        ("weather('Bern')", "a tool call is not name(argument=value)"),
        ("weather(city=input())", "a tool call is neither JSON nor Python: malformed node"),
        ("weather(x={1, 2})", "a tool call is neither JSON nor Python: Object of type set"),
        ("os.system(x=1)", "a tool call is not name(argument=value)"),
        ("(" * 5000, "a tool call is neither JSON nor Python"),
    ],
)
def test_python_is_read_and_never_run(tokenizers: dict[str, Tokenizer], inside: str, problem: str | None) -> None:
    chat = chat_of(tokenizers["text"], template_text())
    message = chat.parse([*chat.tokenizer.encode(f"<tool_call>{inside}</tool_call>"), chat.turn_end])
    if problem is None:
        assert message.tool_calls == [ToolCall("weather", {"city": "Bern", "days": [1]})] and not message.problems
    else:
        assert not message.tool_calls and message.problems[0].startswith(problem)


def rendered(tokenizer: Tokenizer, template: str, messages: list[Message], **options: Any) -> str:
    chat = chat_of(tokenizer, template)
    return chat.tokenizer.decode(chat.prompt(messages, **options))


def test_the_options_of_the_own_template(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer, asked = tokenizers["tokens"], Message("user", "?")
    renamed = rendered(tokenizer, template_text("ingot", {"assistant": "me"}), [asked])
    assert renamed == "<|im_start|>user\n?<|im_end|>\n<|im_start|>me\n"
    told = rendered(
        tokenizer,
        template_text("ingot", {"custom_instructions": "Speak French."}),
        [Message("system", "Be kind."), Message("developer", "Use metres."), asked],
    )
    assert told.startswith(
        "<|im_start|>system\nBe kind.\n\nSpeak French.<|im_end|>\n<|im_start|>developer\nUse metres.<|im_end|>\n<|im_start|>user"
    )
    with pytest.raises(RecipeError, match=r"no option 'assistent'.*\n.*did you mean assistant"):
        template_text("ingot", {"assistent": "me"})
    with pytest.raises(RecipeError, match="no chat template 'qwen4'"):
        template_text("qwen4")
    assert template_options(template_text("hermes4", {"assistant": "me"}))["assistant"] == "me"


def test_thinking_is_switched_by_the_user(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer, template = tokenizers["tokens"], template_text()
    off, on = Message("user", "Quick: 2+2? /no_think"), Message("user", "And why? /think")
    told = Message("assistant", "4")
    assert rendered(tokenizer, template, [off]).endswith("assistant\n<think></think>")
    assert rendered(tokenizer, template, [off, told, Message("user", "3+3?")]).endswith("assistant\n<think></think>")
    assert rendered(tokenizer, template, [off, told, on]).endswith("/think<|im_end|>\n<|im_start|>assistant\n")
    assert rendered(tokenizer, template, [on], thinking=False).endswith("assistant\n")
    path = Message("user", "What is /no_thinking/at all?")
    assert rendered(tokenizer, template, [path]).endswith("assistant\n")


def test_dropped_traces_are_not_learnt_from(tokenizers: dict[str, Tokenizer]) -> None:
    """A turn whose trace is dropped is context: it would teach to answer at once. Traces between tool calls stay."""
    messages = [
        Message("user", "a?"),
        Message("assistant", "A", "first"),
        Message("user", "b?"),
        Message("assistant", "", "second", [ToolCall("clock", {})]),
        Message("tool", "12"),
        Message("assistant", "B", "third"),
    ]

    def learnt(name: str, **options: bool) -> str:
        chat = chat_of(tokenizers["tokens"], template_text(name, options))
        tokens, mask = chat.conversation(messages, TOOLS[1:])
        assert "first" in chat.tokenizer.decode(tokens) or not options.get("keep_thinking", False)
        return chat.tokenizer.decode([token for token, one in zip(tokens, mask, strict=True) if one])

    call = '<tool_call>{"name": "clock", "arguments": {}}</tool_call>'
    last_two = f"<think>second</think>{call}<|im_end|><think>third</think>B<|im_end|>"
    assert learnt("ingot", keep_thinking=True) == "<think>first</think>A<|im_end|>" + last_two
    assert learnt("ingot", keep_thinking=False) == last_two
    assert "first" not in learnt("qwen3") and "second" in learnt("qwen3") and "A<" not in learnt("qwen3")
    assert learnt("harmony").endswith("<|channel|>final<|message|>B<|return|>") and "first" not in learnt("harmony")


def test_harmony_names_the_tool_in_its_result(tokenizers: dict[str, Tokenizer]) -> None:
    chat = chat_of(tokenizers["tokens"], template_text("harmony"))
    called = Message("assistant", "", "hm", [ToolCall("clock", {})])
    tokens = chat.continuation([Message("tool", "12")], after=called)
    text = '<|start|>functions.clock to=assistant<|channel|>commentary<|message|>"12"<|end|><|start|>assistant'
    assert chat.tokenizer.decode(tokens) == text
    names = [chat.tokenizer.piece(token) for token in chat.turn_ends]
    assert names == ["<|return|>", "<|call|>"] and "<|end|>" not in map(chat.tokenizer.piece, chat.stop_tokens)
