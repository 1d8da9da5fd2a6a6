"""The table of chat formats: what a template wrote is read back, however it is cut; what is broken is named and kept."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.serve.openai.parser import TurnParser
from ingot.tokens.call_reader import TurnPart
from ingot.tokens.chat import ChatFormat
from ingot.tokens.message import Message, ToolCall
from ingot.tokens.syntax import formats
from ingot.tokens.turn import TurnReader
from tests.tokens.formats.wires import SPECIAL, TURNS, make_chat, make_tokenizer, sampled

MARKS = ["tokens", "text"]
TOOL: dict[str, Any] = {
    "name": "f",
    "parameters": {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "number": {"type": "number"},
            "flag": {"type": "boolean"},
            "list": {"type": "array"},
            "any": {"type": ["object", "null"]},
        },
    },
}
TOOLS = [TOOL, {"name": "g", "parameters": {"type": "object", "properties": {}}}]
BARE = {"pythonic", "llama3", "llama4"}
ONE_CALL = {"llama3", "llama4"}
CHATS = {(label, marks): make_chat(label, as_text=marks == "text") for label in TURNS for marks in MARKS}
BOTH = pytest.mark.parametrize("marks", MARKS)
EVERY = pytest.mark.parametrize("label", TURNS)

WORDS = st.text(st.characters(exclude_characters="<>[]{}", exclude_categories=["Cs", "Cc"]), max_size=10)
STRIPPED = WORDS.filter(lambda text: text == text.strip())
NAMES = st.from_regex(r"[a-z_]{1,6}", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), max_size=12)
INNER = st.none() | st.booleans() | st.integers(-999, 999) | STRIPPED
VALUES = {
    "text": TEXTS
    | st.sampled_from(["42", "true", "null", '"quoted"', "</parameter>", "a </function> b", "</tool_call>\n"]),
    "number": st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    "flag": st.booleans(),
    "list": st.lists(INNER, max_size=3),
    "any": st.none() | st.dictionaries(NAMES, INNER, max_size=2),
}


@st.composite
def turns(draw: st.DrawFn, label: str) -> Message:
    """A turn that the format can write."""
    arguments = st.fixed_dictionaries({}, optional=VALUES)
    calls = st.builds(ToolCall, st.just("f"), arguments) | st.just(ToolCall("g", {}))
    made = draw(st.lists(calls, max_size=1 if label in ONE_CALL else 3))
    content = draw(STRIPPED) if not (made and label in BARE) else ""
    trace = draw(st.none() | STRIPPED) if formats()[label].thinks else None
    return Message("assistant", content, trace, made)


@BOTH
@EVERY
def test_what_a_template_wrote_is_read_back(label: str, marks: str) -> None:
    """Also values that spell a mark, wherever the format can tell; a text that looks like a number stays one."""
    chat = CHATS[label, marks]
    assert chat.syntax.label == label

    @given(message=turns(label))
    def check(message: Message) -> None:
        tokens, mask = chat.conversation([Message("user", "?"), message], TOOLS)
        written = [token for token, one in zip(tokens, mask, strict=True) if one]
        assert chat.parse(written, tools=TOOLS) == message

    check()


@EVERY
def test_the_example_of_the_table(label: str) -> None:
    for marks in MARKS:
        chat = CHATS[label, marks]
        example = formats()[label].example
        message = chat.parse([*sampled(chat, example), chat.turn_end])
        assert (message.tool_calls, message.content, message.problems) == ([ToolCall("f", {"k": 1})], "", [])


def test_the_example_of_harmony() -> None:
    from ingot.tokens.template_files import template_text

    chat = ChatFormat(make_tokenizer(SPECIAL["harmony"], template_text("harmony")))
    message = chat.parse(sampled(chat, formats()["harmony"].example))
    assert message.tool_calls == [ToolCall("f", {"k": 1})] and not message.problems


def joined(parts: list[TurnPart]) -> list[TurnPart]:
    """The parts with the texts of a section put together."""
    made: list[TurnPart] = []
    for part in parts:
        if made and made[-1].section == part.section != "call" and not made[-1].ends:
            part = TurnPart(part.section, made.pop().text + part.text, part.ends, part.outcome)
        made.append(part)
    return made


def said(part: TurnPart) -> str:
    """What the model wrote for a part; what it wrote for a call comes when that has ended."""
    if part.outcome is not None:
        return part.outcome.written
    return part.text if part.section in ("content", "thinking") else ""


def read_in(chat: ChatFormat, tokens: list[int], cuts: list[int], **options: Any) -> tuple[list[TurnPart], list[str]]:
    """The parts of a turn that comes in pieces."""
    reader, parts = TurnReader(chat.tokenizer, chat.syntax, **options), list[TurnPart]()
    for start, end in zip([0, *cuts], [*cuts, len(tokens)], strict=True):
        for event in reader._scanner.push_all(tokens[start:end]):
            parts += reader._event(event)
    parts += reader.finish()
    return joined(parts), reader.problems


@BOTH
@EVERY
def test_any_turn_in_any_pieces(label: str, marks: str) -> None:
    """Whatever is written, cut anywhere: the same parts, never an exception, and every character is in one of them."""
    chat = CHATS[label, marks]
    syntax = chat.syntax
    own = sorted({mark for found in syntax.states.values() for mark in found})
    words = [
        *own,
        "f",
        "g",
        '{"k": 1}',
        '{"name": "f", "arguments": {',
        "}",
        '"',
        "f(k=1)",
        "[",
        "]",
        "\n",
        " ",
        "ж",
        "é",
        "```",
    ]

    @given(
        pieces=st.lists(st.sampled_from([*words, syntax.example]), max_size=12),
        data=st.data(),
        in_thinking=st.booleans() if syntax.thinks else st.just(False),
    )
    def check(pieces: list[str], data: st.DataObject, in_thinking: bool) -> None:
        text = "".join(pieces)
        tokens = sampled(chat, text)
        cuts = sorted(data.draw(st.lists(st.integers(0, len(tokens)), max_size=8)))
        whole, problems = read_in(chat, tokens, [], in_thinking=in_thinking, tools=TOOLS)
        assert read_in(chat, tokens, cuts, in_thinking=in_thinking, tools=TOOLS) == (whole, problems)
        every = list(range(1, len(tokens)))
        assert read_in(chat, tokens, every, in_thinking=in_thinking, tools=TOOLS) == (whole, problems)
        for sign in ("ж", "é") if "header" not in syntax.states else ():  # what a header says is not part of the turn
            assert sum(said(part).count(sign) for part in whole) >= text.count(sign)
        chat.parse(tokens, in_thinking, tools=TOOLS)

    check()


@BOTH
@EVERY
def test_the_server_streams_what_parse_reads(label: str, marks: str) -> None:
    """Token by token: the name of a call comes before its arguments, which are JSON when they are put together."""
    chat = CHATS[label, marks]

    @given(message=turns(label))
    def check(message: Message) -> None:
        tokens, mask = chat.conversation([Message("user", "?"), message], TOOLS)
        written = [token for token, one in zip(tokens, mask, strict=True) if one][:-1]
        parser = TurnParser(chat.tokenizer, chat.syntax, calls=True, tools=TOOLS)
        deltas = [delta for token in written for delta in parser.push(token)] + parser.finish()
        calls = list[list[str]]()
        for delta in deltas:
            if delta.kind == "call":
                calls.append([delta.text, ""])
            elif delta.kind == "arguments":
                calls[-1][1] += delta.text
        assert [ToolCall(name, json.loads(text)) for name, text in calls] == message.tool_calls
        for kind, text in (("content", message.content), ("reasoning", message.thinking or "")):
            assert "".join(delta.text for delta in deltas if delta.kind == kind).strip() == text

    check()


@pytest.mark.parametrize(
    "label", ["tags", "glm45", "qwen3_coder", "minimax_m2", "deepseek_v31", "kimi_k2", "mistral", "gemma4"]
)
def test_arguments_come_as_they_are_written(label: str) -> None:
    """A long text is not held back until it is complete, and a name not until its arguments come."""
    chat = CHATS[label, "tokens"]
    call = Message("assistant", "", tool_calls=[ToolCall("f", {"text": "word " * 50})])
    tokens, mask = chat.conversation([Message("user", "?"), call], TOOLS)
    written = [token for token, one in zip(tokens, mask, strict=True) if one][:-1]
    parser = TurnParser(chat.tokenizer, chat.syntax, calls=True, tools=TOOLS)
    shown = [sum(len(delta.text) for delta in parser.push(token)) for token in written]
    late = [sum(shown[: index + 1]) < index - 150 for index in range(len(written))]
    assert sum(size > 0 for size in shown) > 200 and not any(late)
