"""Conversation files: what is read, and the error of every broken row, with file and line."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ingot.post.data.conversations.conversation_file import Rendered, RowReading, file_conversations, render_row
from ingot.tokens.chat import ChatFormat, Message, ToolCall
from ingot.workspace.errors import DataError

USER: dict[str, Any] = {"role": "user", "content": "12 * 12?"}
ANSWER: dict[str, Any] = {"role": "assistant", "content": "144"}


def call(arguments: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"function": {"name": "calculator", "arguments": arguments}}]}


def test_rows_become_sequences(tmp_path: Path, chat: ChatFormat) -> None:
    path = tmp_path / "rows.jsonl"
    tools = [{"name": "calculator"}]
    rows = [
        {"messages": [USER, ANSWER], "thinking": False, "source": "an unknown key of a row is ignored"},
        {"messages": [USER, call({"expression": "12*12"}), {"role": "tool", "content": "144"}, ANSWER], "tools": tools},
        {"messages": [{"role": "user", "content": "line\u2028separator"}, {**ANSWER, "thinking": "times"}]},
    ]
    text = "\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\r\n"
    path.write_bytes(text.encode("utf-8"))
    sequences = file_conversations(path, chat)
    question, answer = Message("user", "12 * 12?"), Message("assistant", "144")
    calling = Message("assistant", tool_calls=[ToolCall("calculator", {"expression": "12*12"})])
    opened = [replace(calling, thinking=""), Message("tool", "144"), replace(answer, thinking="")]
    expected = [
        chat.conversation([question, answer], thinking=False),
        chat.conversation([question, *opened], tools),  # the row does not say `thinking`: both modes
        chat.conversation([question, calling, Message("tool", "144"), answer], tools, thinking=False),
        chat.conversation([Message("user", "line\u2028separator"), Message("assistant", "144", "times")]),
    ]
    assert [(each.tokens, each.streams["weight"]) for each in sequences] == expected


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("{oops", "the line is not JSON"),
        ([1], "the line is not a JSON object"),
        ({"conversation": "x"}, "no list `conversation`"),
        ({"dialogue": []}, "no known form of conversation has the keys dialogue"),
        ({"messages": {"role": "user"}}, "no list `messages`"),
        ({"messages": ["hello"]}, "message 0: not a mapping with a `role`"),
        ({"messages": [USER, {"content": "x"}]}, "message 1: not a mapping with a `role`"),
        ({"messages": [{**USER, "role": "alien"}]}, "message 0: unknown role 'alien'"),
        ({"messages": [USER, ANSWER, {"role": "system", "content": "x"}]}, "message 2: a system turn after the first"),
        (
            {"messages": [USER, {**ANSWER, "resoning": "x"}]},
            "message 1: unknown part 'resoning'\n  fix: did you mean reas",
        ),
        ({"messages": [USER, {**ANSWER, "content": 144}]}, "message 1: `content` is neither a text nor"),
        ({"messages": [{**USER, "content": [{"type": "image_url"}]}, ANSWER]}, "a part of the content is of the type"),
        ({"messages": [{**USER, "images": ["a.png"]}, ANSWER]}, "message 0: `images`: only text is learnt"),
        ({"messages": [USER, {**ANSWER, "thinking": ["x"]}]}, "message 1: the thinking trace is not a text"),
        ({"messages": [USER, {**ANSWER, "weight": 0.5}]}, "message 1: `weight` is 0.5"),
        ({"messages": [USER, {**ANSWER, "weight": 0}]}, "nothing of the conversation is learnt"),
        ({"messages": [USER, call("{expression}")]}, "message 1: the arguments of calculator: not JSON"),
        ({"messages": [USER, call([1])]}, "message 1: the arguments of calculator are not an object"),
        ({"messages": [USER, {"role": "assistant", "tool_calls": [{"arguments": {}}]}]}, "a tool call without a name"),
        ({"messages": [USER, {"role": "assistant", "tool_calls": "x"}]}, "`tool_calls` is not a list of calls"),
        ({"messages": [USER, {**ANSWER, "content": "<think>12 times"}]}, "message 1: the thinking trace is not closed"),
        ({"instruction": "x", "output": 3}, "`output` is not a text"),
        ({"instruction": "x", "output": "y", "history": ["a"]}, "`history` is not a list of pairs"),
        ({"prompt": 3, "completion": "x"}, "`prompt` is neither a text nor a list of messages"),
        ({"conversations": [], "chosen": {}, "rejected": {}}, "a preference pair, not a conversation"),
        ({"messages": [{**USER, "thinking": "x"}, ANSWER]}, "message 0: a user turn with thinking or tool calls"),
        ({"messages": [USER, {**ANSWER, "thinking": "x"}], "thinking": False}, "1: a thinking trace in a conversation"),
        ({"messages": [USER, ANSWER], "thinking": "no"}, "`thinking` of the row is 'no'"),
        ({"messages": [USER, ANSWER], "tools": {"name": "x"}}, "`tools` is not a list of tool schemas"),
        ({"messages": [USER]}, "the assistant mask is all zero"),
        ({"messages": []}, "the assistant mask is all zero"),
        ({"messages": [USER, {**ANSWER, "content": "long " * 50}]}, "tokens, a row of this stage takes 100"),
    ],
)
def test_a_broken_row_is_named(tmp_path: Path, chat: ChatFormat, row: Any, problem: str) -> None:
    path = tmp_path / "rows.jsonl"
    line = row if isinstance(row, str) else json.dumps(row)
    path.write_text(json.dumps({"messages": [USER, ANSWER]}) + "\n\n" + line + "\n", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        file_conversations(path, chat, longest=100)
    assert str(caught.value).startswith(f"{path}:3")
    assert problem in str(caught.value)


def test_bytes_that_are_no_text_are_named(tmp_path: Path, chat: ChatFormat) -> None:
    path = tmp_path / "latin.jsonl"
    path.write_bytes(b'\n{"messages": [{"role": "user", "content": "caf\xe9"}]}\n')
    with pytest.raises(
        DataError, match=r"latin\.jsonl:2: the line is not JSON: 'utf-8' codec can't decode byte 0xe9 in position 46"
    ):
        file_conversations(path, chat)


def test_a_missing_file_is_named(tmp_path: Path, chat: ChatFormat) -> None:
    with pytest.raises(DataError, match=r"nowhere\.jsonl: there is no such file"):
        file_conversations(tmp_path / "nowhere.jsonl", chat)


def test_tools_that_nobody_needs_are_offered(chat: ChatFormat) -> None:
    """As a chat offers them: a share of the conversations without tools of their own has them in its prompt."""
    tools: dict[str, Any] = {
        "name": "calculator",
        "description": "",
        "parameters": {"type": "object", "properties": {}},
    }
    own = {**tools, "name": "clock"}

    def rendered(share: float, question: str, **more: Any) -> list[list[int]]:
        turns = [{"role": "user", "content": question}, {"role": "assistant", "content": "Yes"}]
        reading = RowReading(spare_tools=share, offered=(tools,))
        made = list(render_row("row 1", {"messages": turns, "thinking": False, **more}, chat, reading))
        assert all(isinstance(each, Rendered) for each in made)
        return [each.tokens for one in made if isinstance(one, Rendered) for each in one.sequences]

    def expected(question: str, *offered: dict[str, Any]) -> list[list[int]]:
        messages = [Message("user", question), Message("assistant", "Yes")]
        return [chat.conversation(messages, [*offered] or None, False)[0]]

    assert rendered(0.0, "Open?") == expected("Open?")
    assert rendered(1.0, "Open?") == expected("Open?", tools)
    assert rendered(1.0, "Open?", tools=[own]) == expected("Open?", own), "its own tools are its own"
    questions = [f"Is {number} odd?" for number in range(200)]
    share = sum(rendered(0.3, each) == expected(each, tools) for each in questions) / 200
    assert abs(share - 0.3) < 0.1 and rendered(0.3, "Open?") == rendered(0.3, "Open?")
