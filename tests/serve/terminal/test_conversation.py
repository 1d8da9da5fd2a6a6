"""Conversations with a model in this process: what it sampled is kept, and a conversation can always go on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from openai.types.chat import ChatCompletionMessageParam
from pydantic import TypeAdapter

from ingot.envs.tools.tool import LONGEST_RESULT, Tool, make_tool
from ingot.inference.engine import Engine
from ingot.inference.sampling import Sampling
from ingot.model.transformer import Transformer
from ingot.serve.terminal.conversation import CALL_ROUNDS, STOPPED, Piece, TerminalConversation
from ingot.serve.terminal.local_model import LocalModel, PieceReader
from ingot.tokens.chat import ChatFormat, Message, ToolCall
from ingot.tokens.openai_messages import from_openai, to_openai
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import DataError, IngotError
from tests.serve.speaker import (
    FAREWELL,
    QUESTION,
    SCHEMA,
    conversations,
    trained_speaker,
)

TOOLS = {"times": make_tool(lambda a, b: str(a * b), schema=SCHEMA, asks=False, here=True)}


@pytest.fixture(scope="module")
def speaker() -> Transformer:
    return trained_speaker()


def make_conversation(model: Transformer, tools: dict[str, Tool] = TOOLS, length: int = 256) -> TerminalConversation:
    assert model.tokenizer is not None
    who = LocalModel(Engine(model, slots=1, length=length), ChatFormat(model.tokenizer))
    return TerminalConversation(who, Sampling(max_new_tokens=100, temperature=0.0), tools)


def tokens_of(conversation: TerminalConversation) -> list[int]:
    assert isinstance(conversation.model, LocalModel)
    return conversation.model._tokens


def test_sampled_tokens_are_kept_as_they_are(speaker: Transformer) -> None:
    assert speaker.tokenizer is not None
    conversation = make_conversation(speaker)
    for text in (QUESTION, FAREWELL):
        list(conversation.say(text))
    expected = conversations(ChatFormat(speaker.tokenizer))[0]
    assert tokens_of(conversation) == expected[: len(tokens_of(conversation))]
    assert len(expected) - len(tokens_of(conversation)) <= 1  # the line end after the last turn
    assert " ".join(message.role for message in conversation.messages) == "user assistant tool assistant user assistant"
    assert conversation.messages[1] == Message("assistant", "", "call it", [ToolCall("times", {"a": 12, "b": 34})])


def test_retry_goes_back_to_the_tokens_before_the_answer(speaker: Transformer) -> None:
    conversation = make_conversation(speaker)
    list(conversation.say(QUESTION))
    before = list(tokens_of(conversation))
    list(conversation.say(FAREWELL))
    once = list(tokens_of(conversation))
    list(conversation.retry())
    assert tokens_of(conversation) == once and once[: len(before)] == before
    conversation.system = "Be short."
    list(conversation.retry())  # another opening: everything is encoded anew
    assert tokens_of(conversation)[: len(before)] != before
    assert [message.role for message in conversation.messages][:2] == ["system", "user"]


def test_an_answer_that_is_stopped_is_ended_and_the_talk_goes_on(speaker: Transformer) -> None:
    assert speaker.tokenizer is not None
    conversation = make_conversation(speaker)
    with closing(conversation.say(QUESTION)) as pieces:
        shown = [next(pieces) for _ in range(5)]
    assert shown == [Piece("thinking", letter) for letter in "call "]
    end = speaker.tokenizer.special["<|im_end|>"]
    assert tokens_of(conversation)[-1] == end and conversation.messages[-1].thinking == "call "
    list(conversation.say(FAREWELL))
    assert tokens_of(conversation).count(end) == 5  # system, user, assistant, user, assistant


def test_a_message_to_which_nothing_was_said_is_taken_back(speaker: Transformer) -> None:
    conversation = make_conversation(speaker, length=100)
    with pytest.raises(IngotError, match="the model holds 100") as told:
        list(conversation.say("1" * 100))
    assert told.value.fix == "say less, or offer no tools (--tools none)", "nothing was said before"
    assert conversation.messages == []
    with pytest.raises(IngotError, match="the model holds 100"):  # and it can be sent again
        list(conversation.retry())
    conversation.reset()
    with pytest.raises(IngotError, match="nothing has been said"):
        list(conversation.retry())


def test_a_call_that_is_stopped_has_an_answer(speaker: Transformer) -> None:
    def stop(**arguments: Any) -> str:
        raise KeyboardInterrupt

    conversation = make_conversation(speaker, {"times": make_tool(stop, schema=SCHEMA, asks=False, here=True)})
    with pytest.raises(KeyboardInterrupt):
        list(conversation.say(QUESTION))
    assert conversation.messages[-1] == Message("tool", STOPPED)


def test_a_tool_that_is_not_there_is_named_to_the_model(speaker: Transformer) -> None:
    other = {"other": TOOLS["times"]}  # the model reads the schema it knows and calls "times"
    results = [piece for piece in make_conversation(speaker, other).say(QUESTION) if isinstance(piece, Message)]
    assert results[0] == Message("tool", "error: there is no tool times; there are: other")


def test_a_long_result_is_cut(speaker: Transformer) -> None:
    book = {"times": make_tool(lambda a, b: "x" * (LONGEST_RESULT + 5), schema=SCHEMA, asks=False, here=True)}
    conversation = make_conversation(speaker, book)
    with pytest.raises(
        IngotError, match=r"tokens, the model holds 256.*\n.*say less, or begin again with /reset, or offer"
    ):
        list(conversation.say(QUESTION))
    assert conversation.messages[-1].content == "x" * LONGEST_RESULT + "\n… (5 more characters were cut)"


def test_calls_without_end_are_ended(speaker: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert speaker.tokenizer is not None
    conversation = make_conversation(speaker, length=2000)
    turn = conversations(ChatFormat(speaker.tokenizer))[0]
    start = turn.index(speaker.tokenizer.special["<tool_call>"])
    script = turn[start : turn.index(speaker.tokenizer.special["<|im_end|>"], start) + 1]
    say(monkeypatch, script)
    results = [piece for piece in conversation.say(QUESTION) if isinstance(piece, Message)]
    assert results == [Message("tool", "408")] * CALL_ROUNDS


def say(monkeypatch: pytest.MonkeyPatch, script: list[int]) -> None:
    """Let every engine sample these tokens."""

    def stream(engine: Engine, prompt: list[int], sampling: Sampling) -> Iterator[int]:
        yield from script

    monkeypatch.setattr(Engine, "stream", stream)


def test_a_template_that_opens_the_trace_for_the_model(speaker: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = speaker.tokenizer
    assert plain is not None and plain.chat_template is not None
    before, after = plain.chat_template.rsplit('("" if', 1)
    tokenizer = Tokenizer(plain.backend, f'{before}("<think>" if{after}')
    who = LocalModel(Engine(speaker, slots=1, length=256), ChatFormat(tokenizer))
    say(
        monkeypatch,
        [*tokenizer.encode("hm"), tokenizer.special["</think>"], *tokenizer.encode("yes"), who.chat.turn_end],
    )
    conversation = TerminalConversation(who, Sampling(max_new_tokens=10))
    pieces = list(conversation.say("Is it?"))
    assert pieces[0] == Piece("thinking", "h") and pieces[-1] == Piece("content", "s")
    assert conversation.messages[-1] == Message("assistant", "yes", "hm")


def test_characters_are_shown_when_they_are_complete(speaker: Transformer) -> None:
    assert speaker.tokenizer is not None
    reader = PieceReader(ChatFormat(speaker.tokenizer))
    first, second, third = speaker.tokenizer.encode("—")
    assert [*reader.push(first), *reader.push(second)] == []
    assert list(reader.push(third)) == [Piece("content", "—")]
    special = speaker.tokenizer.special
    assert list(reader.push(first)) == []
    assert list(reader.push(special["<tool_call>"])) == [Piece("content", "\N{REPLACEMENT CHARACTER}")]
    assert list(reader.push(special["</tool_call>"])) == [
        Piece("content", "<tool_call></tool_call>"),
        Piece("call", ""),
    ]


def test_messages_have_the_shape_that_openai_takes() -> None:
    messages = [
        Message("system", "Be short."),
        Message("user", "12*34 and 5*6? — ja"),
        Message("assistant", "", "both", [ToolCall("times", {"a": 12, "b": 34}), ToolCall("times", {"a": 5, "b": 6})]),
        Message("tool", "408"),
        Message("tool", "30"),
        Message("assistant", "408 and 30"),
        Message("user", "again"),
        Message("assistant", "", None, [ToolCall("times", {})]),
        Message("tool", "error: no"),
    ]
    values = to_openai(messages)
    checked = TypeAdapter(list[ChatCompletionMessageParam]).validate_python(values)
    assert [value["role"] for value in checked] == [message.role for message in messages]
    ids = [call["id"] for value in values for call in value.get("tool_calls", ())]
    assert ids == [value["tool_call_id"] for value in values if value["role"] == "tool"] and len(set(ids)) == 3
    assert from_openai(values, "test") == messages and from_openai({"messages": values}, "test") == messages


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("hello", "no list of messages"),
        ([{"content": "x"}], "without a known role"),
        ([{"role": "user", "content": 5}], "not text"),
        ([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}], "cannot be read"),
        ([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[]"}}]}], "a mapping"),
        ([{"role": "assistant", "tool_calls": ["f"]}], "cannot be read"),
    ],
)
def test_other_files_are_refused(value: Any, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        from_openai(value, "file.json")
