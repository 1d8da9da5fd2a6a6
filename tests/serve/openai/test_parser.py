"""The streaming parser: hand-worked turns, and the parser of whole turns in ingot/tokens/chat.py."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.serve.openai.parser import Delta, TurnParser
from ingot.tokens.chat import ChatFormat, Message, ToolCall
from ingot.tokens.syntax import formats
from ingot.tokens.template_files import template_text
from ingot.tokens.tokenizer import Tokenizer
from tests.inference.structure.conftest import byte_level


def read(parser: TurnParser, tokens: list[int]) -> list[Delta]:
    """All deltas of a turn, neighbours of one kind joined."""
    deltas = [delta for token in tokens for delta in parser.push(token)] + parser.finish()
    return [Delta(kind, "".join(d.text for d in group)) for kind, group in groupby(deltas, key=lambda d: d.kind)]


def tokens_of(tokenizer: Tokenizer, *parts: str) -> list[int]:
    """Special tokens by name, everything else as text."""
    return [
        id
        for part in parts
        for id in ([tokenizer.special[part]] if part in tokenizer.special else tokenizer.encode(part))
    ]


TAGS = formats()["tags"]
CALL = '{"name": "times", "arguments": {"a": 12}}'
TURNS: list[tuple[list[str], dict[str, Any], list[tuple[str, str]]]] = [
    (["Hello"], {}, [("content", "Hello")]),
    (["<think>", "hm", "</think>", "Yes"], {}, [("reasoning", "hm"), ("content", "Yes")]),
    (["<think>", "\n hm\n", "</think>", "\n\nYes"], {}, [("reasoning", " hm"), ("content", "Yes")]),  # Qwen's layout
    (["hm", "</think>", "Yes"], {"in_thinking": True}, [("reasoning", "hm"), ("content", "Yes")]),  # DeepSeek's
    (["<think>", "hm"], {}, [("reasoning", "hm")]),  # cut off
    (["<think>", "</think>", "Yes "], {}, [("content", "Yes ")]),
    (["<tool_call>", CALL, "</tool_call>"], {"calls": True}, [("call", "times"), ("arguments", '{"a": 12}')]),
    (
        ["Sure.\n", "<tool_call>", f"\n{CALL}\n", "</tool_call>", "\n", "<tool_call>", CALL, "</tool_call>"],
        {"calls": True},
        [
            ("content", "Sure."),
            ("call", "times"),
            ("arguments", '{"a": 12}'),
            ("call", "times"),
            ("arguments", '{"a": 12}'),
        ],
    ),
    (["<tool_call>", '{"name": "f", "arguments": {"x": "}'], {}, [("call", "f"), ("arguments", '{"x": "}')]),  # cut off
    (["<tool_call>", '{"arguments": {}, "name": "f"}', "</tool_call>"], {}, [("call", "f"), ("arguments", "{}")]),
    (["<tool_call>", '{"name": "f", "arguments": "{}"}', "</tool_call>"], {}, [("call", "f"), ("arguments", "{}")]),
    (
        ["<tool_call>", "times(a=12)", "</tool_call>"],
        {},
        [("call", "times"), ("arguments", '{"a": 12}')],
    ),  # quickstart's
    (["<tool_call>", "times(a=1", "</tool_call>"], {}, [("content", "<tool_call>times(a=1</tool_call>")]),
    (["<tool_call>", "no JSON", "</tool_call>"], {}, [("content", "<tool_call>no JSON</tool_call>")]),
    (["a", "<think>", "b", "</think>", "c"], {}, [("content", "a"), ("reasoning", "b"), ("content", "c")]),
    (["a", "</think>", "</tool_call>", "<|im_start|>", "b"], {}, [("content", "ab")]),  # strays
    (["one two three"], {"stop_strings": ["two"]}, [("content", "one ")]),
    (["<think>", "two", "</think>", "two"], {"stop_strings": ["two"]}, [("reasoning", "two")]),
    (["<think>x</think>"], {}, [("content", "<think>x</think>")]),  # text that looks like a tag, with no special token
]
IN_TEXT: list[tuple[str, dict[str, Any], list[tuple[str, str]]]] = [
    (
        "so <tool_call>" + CALL + "</tool_call>\n",
        {"calls": True},
        [("content", "so"), ("call", "times"), ("arguments", '{"a": 12}')],
    ),
    ("a <tool_c> b <tool_ca", {"calls": True}, [("content", "a <tool_c> b <tool_ca")]),
    ("<tool_call>\n" + CALL, {"calls": True}, [("call", "times"), ("arguments", '{"a": 12}')]),  # cut off
    (f"<tool_call>{CALL}</tool_call>", {}, [("content", f"<tool_call>{CALL}</tool_call>")]),  # no tools were offered
    (
        "<think>\nhm END\n</think>\n\nyes END.",
        {"stop_strings": ["END"]},
        [("reasoning", "hm END"), ("content", "yes ")],
    ),
    ("hm</think>yes", {"in_thinking": True}, [("reasoning", "hm"), ("content", "yes")]),
    ("a</thin", {}, [("content", "a</thin")]),
]


@pytest.fixture(scope="module")
def styles(tokenizer: Tokenizer) -> dict[str, ChatFormat]:
    """Ingot's template with calls in either style."""
    texts = {style: template_text("ingot", {"call_style": style}) for style in ("json", "python")}
    return {style: ChatFormat(Tokenizer(tokenizer.backend, text)) for style, text in texts.items()}


@pytest.mark.parametrize(("parts", "options", "expected"), TURNS, ids=lambda value: str(value)[:50])
def test_turns(
    tokenizer: Tokenizer, parts: list[str], options: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    deltas = read(TurnParser(tokenizer, TAGS, **options), tokens_of(tokenizer, *parts))
    assert [(delta.kind, delta.text) for delta in deltas] == expected


@pytest.mark.parametrize(("text", "options", "expected"), IN_TEXT, ids=lambda value: str(value)[:50])
def test_tags_in_plain_text(text: str, options: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    """A model without tokens for the tags spells them, here byte by byte."""
    spelling = byte_level([bytes([byte]) for byte in range(256)], ["<|im_start|>", "<|im_end|>"])
    ids = {data: id for id, data in spelling.bytes_of_id.items()}
    deltas = read(TurnParser(spelling, TAGS, **options), [ids[bytes([byte])] for byte in text.encode()])
    assert [(delta.kind, delta.text) for delta in deltas] == expected


TEXTS = st.text(max_size=12).filter(lambda text: text == text.strip())
ARGUMENTS = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=5,
    ),
    max_size=3,
)
MESSAGES = st.builds(
    Message,
    role=st.just("assistant"),
    content=TEXTS,
    thinking=st.none() | TEXTS,
    tool_calls=st.lists(st.builds(ToolCall, name=st.text(min_size=1, max_size=5), arguments=ARGUMENTS), max_size=3),
)


@pytest.mark.parametrize("style", ["json", "python"])
@given(message=MESSAGES)
def test_what_the_template_wrote_is_read_back(styles: dict[str, ChatFormat], style: str, message: Message) -> None:
    """Any message, as Ingot's template writes it, comes out of the stream as it went in."""
    chat_format = styles[style]
    tokens, mask = chat_format.conversation([Message("user", "?"), message])
    written = [token for token, ours in zip(tokens, mask, strict=True) if ours]
    parser = TurnParser(chat_format.tokenizer, TAGS, calls=True)
    deltas = [delta for token in written[:-1] for delta in parser.push(token)] + parser.finish()
    texts = {kind: "".join(d.text for d in deltas if d.kind == kind) for kind in ("content", "reasoning")}
    calls: list[list[str]] = []
    for delta in deltas:
        if delta.kind == "call":
            calls.append([delta.text, ""])
        elif delta.kind == "arguments":
            calls[-1][1] += delta.text
    assert (texts["content"], texts["reasoning"]) == (message.content, message.thinking or "")
    assert [(name, json.loads(text)) for name, text in calls] == [(c.name, c.arguments) for c in message.tool_calls]
    assert parser.calls == len(message.tool_calls)
    expected = chat_format.parse(written)
    assert (expected.content, expected.tool_calls) == (message.content, message.tool_calls)


def test_what_is_released_is_counted_as_tokens_begin(tokenizer: Tokenizer) -> None:
    """Also behind bytes that are no character: the tokens that begin in what is released are those before the stop string."""
    broken = tokenizer.encode("€")[:1]
    thought = tokens_of(tokenizer, "<think>", "hm", "</think>")
    before = [*tokenizer.encode("é"), *broken, *tokenizer.encode("ab"), *broken]
    behind = [*tokenizer.encode("€c"), *broken, *broken, *tokenizer.encode("d")]
    parser = TurnParser(tokenizer, TAGS, stop_strings=["END"])
    shown, starts = "", []
    for token in [*before, *thought, *behind, *tokenizer.encode("END.")]:
        is_text = parser.section == "content" and token not in tokenizer.special.values()
        shown += "".join(delta.text for delta in parser.push(token) if delta.kind == "content")
        starts += [parser.start] if is_text else []
    assert shown == "é\ufffdab\ufffd€c\ufffd\ufffdd" and parser.stopped and parser.released == len(shown)
    assert starts == [0, 0, 1, 2, 3, 4, 5, 5, 5, 6, 7, 8, 9, 10, 11, 12, 13]
    assert sum(start < parser.released for start in starts) == len(before) + len(behind)
