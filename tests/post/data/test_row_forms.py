"""Forms of rows: the real files that people publish, read as their makers mean them, beside TRL's own conversion."""

from __future__ import annotations

import copy
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, DatasetDict
from trl.data_utils import is_conversational, maybe_convert_to_chatml

from ingot.envs.rows import read_rows, stream_rows
from ingot.post.data.conversations.conversation import Conversation
from ingot.post.data.conversations.row_forms import conversations_of, recognise
from ingot.tokens.chat import Message, ToolCall
from ingot.workspace.errors import DataError

DATA = Path(__file__).parents[3] / "shared" / "data"
LLAMA_FACTORY = DATA / "llamafactory_demo"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the published files are not here")


def rows_of(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file.read().split("\n") if line]


def one(row: dict[str, Any], form: str = "auto") -> Conversation:
    (found,) = conversations_of(row, form)
    return found


@needs_data
def test_sharegpt_as_trl_converts_it_and_llama_factory_means_it() -> None:
    """TRL renames the keys of all 300 rows and leaves the roles' names; calls are JSON in their values."""
    roles = {"human": "user", "gpt": "assistant", "observation": "tool", "function_call": "assistant"}
    calls = 0
    for row in rows_of(LLAMA_FACTORY / "glaive_toolcall_en_demo.jsonl.gz"):
        ours = one(row)
        theirs = maybe_convert_to_chatml({"conversations": copy.deepcopy(row["conversations"])})["messages"]
        assert one({"conversations": theirs, "tools": row["tools"]}) == ours  # with TRL's keys and ShareGPT's roles
        assert [message.role for message in ours.messages] == [roles[each["role"]] for each in theirs]
        for message, each in zip(ours.messages, theirs, strict=True):
            if each["role"] == "function_call":
                calls += 1
                assert [vars(call) for call in message.tool_calls] == [json.loads(each["content"])]
                assert message.content == ""
            else:
                assert (message.content, message.tool_calls) == (each["content"], [])
        assert ours.tools == (json.loads(row["tools"]) if row["tools"] else [])
    assert calls == 211


@needs_data
def test_messages_of_parts() -> None:
    """LLaMA-Factory's rows of parts: text, reasoning and calls, tools as an object or as JSON text."""
    for row in rows_of(LLAMA_FACTORY / "reason_tool_use_demo_50.jsonl.gz"):
        ours = one(row)
        assert ours.thinking is True
        for message, given in zip(ours.messages, row["messages"], strict=True):
            parts = {kind: [part["value"] for part in given["content"] if part["type"] == kind] for kind in
                     ("text", "reasoning", "tool_call")}  # fmt: skip
            assert message.content == "".join(parts["text"])
            assert message.thinking == ("".join(parts["reasoning"]) if parts["reasoning"] else None)
            assert [vars(call) for call in message.tool_calls] == [json.loads(call) for call in parts["tool_call"]]
        assert ours.tools == (json.loads(row["tools"]) if isinstance(row["tools"], str) else row["tools"])


@needs_data
@pytest.mark.parametrize(
    ("name", "form", "count"),
    [
        ("llamafactory_demo/alpaca_en_demo", "alpaca", 999),
        ("rasbt_instruct/instruction_data", "alpaca", 1100),
        ("llamafactory_demo/kto_en_demo", "messages", 300),
        ("llamafactory_demo/c4_demo", "plain", 300),
    ],
)
def test_published_files_are_read_whole(name: str, form: str, count: int) -> None:
    """Each row has its form by its keys, and no word of it is lost."""
    rows = read_rows(str(DATA / f"{name}.jsonl.gz"))
    assert len(rows) == count
    for _, row in rows:
        assert recognise(row) == form
        said = "".join(message.content for message in one(row).messages)
        texts = [turn["content"] for turn in row["messages"]] if form == "messages" else row.values()
        assert all(text in said for text in texts)
        assert len(said) - sum(map(len, texts)) == (1 if row.get("input") else 0)  # the line break before an input


@needs_data
def test_a_function_of_the_users_reads_trees(tmp_path: Path) -> None:
    """OpenAssistant's trees: one conversation for each answer, by nine lines of somebody's own."""
    code = tmp_path / "trees.py"
    code.write_text(
        "def paths(node, before):\n"
        "    turns = [*before, {'role': node['role'], 'content': node['text']}]\n"
        "    if node['role'] == 'assistant':\n"
        "        yield {'messages': turns}\n"
        "    for reply in node['replies']:\n"
        "        yield from paths(reply, turns)\n\n\n"
        "def convert(row):\n"
        "    return list(paths(row['prompt'], [])) or None\n",
        encoding="utf-8",
    )
    rows = rows_of(DATA / "oasst" / "en_100_tree.jsonl.gz")
    made = [each for row in rows for each in conversations_of(row, f"{code}:convert")]
    assert len(made) == json.dumps(rows).count('"role": "assistant"')
    assert {message.role for each in made for message in each.messages} == {"user", "assistant"}
    assert all(each.messages[-1].role == "assistant" for each in made)


def test_every_key_that_people_have() -> None:
    row = {
        "messages": [
            {"role": "developer", "content": "Be short.", "name": None},
            {"role": "user", "content": [{"type": "text", "text": "12 * "}, {"type": "text", "text": "12?"}]},
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "times",
                "weight": 0,
                "refusal": None,
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "run", "arguments": '{"x": 1, "y": null}'}},
                    {"id": "b", "type": "function", "function": {"name": "run", "arguments": {"x": 2, "y": None}}},
                ],
            },
            {"role": "tool", "tool_call_id": "a", "name": "run", "content": "144"},
            {"role": "assistant", "content": "<think>\nread it\n</think>\n\n144"},
            {"role": "user", "content": "And?"},
            {"role": "assistant", "content": "", "function_call": {"name": "run", "arguments": "{}"}},
        ],
        "tools": [{"name": "run", "parameters": None}],
        "parallel_tool_calls": False,
    }
    ours = one(row)
    calls = [
        ToolCall("run", {"x": 1, "y": None}),
        ToolCall("run", {"x": 2}),
    ]  # in an object Arrow may have put the null
    assert ours.messages == [
        Message("developer", "Be short."),
        Message("user", "12 * 12?"),
        Message("assistant", "", "times", calls),
        Message("tool", "144"),
        Message("assistant", "144", "read it"),
        Message("user", "And?"),
        Message("assistant", "", None, [ToolCall("run", {})]),
    ]
    assert ours.weights == [1, 1, 0, 1, 1, 1, 1]
    assert (ours.tools, ours.thinking) == ([{"name": "run"}], True)
    row["messages"][3]["tool_call_id"] = "c"  # type: ignore[index]
    with pytest.raises(DataError, match="message 3: answers the call 'c', which nothing before it made"):
        one(row)


def test_alpaca_with_all_its_columns() -> None:
    row = {"instruction": "Add.", "input": "1 2", "output": "3", "system": "Count.", "history": [["Hi", "Ho"]]}
    turns = ["Count.", "Hi", "Ho", "Add.\n1 2", "3"]
    assert [message.content for message in one(row).messages] == turns
    dolly = {"instruction": "Add.", "context": "1 2", "response": "3", "category": "sums"}
    assert [message.content for message in one(dolly).messages] == ["Add.\n1 2", "3"]


def test_prompt_and_completion() -> None:
    """Of lists only the completion is learnt, as in TRL's `completion_only_loss`; texts are turns, or plain if so named."""
    prompt = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Ho"},
        {"role": "user", "content": "?"},
    ]
    row = {"prompt": prompt, "completion": [{"role": "assistant", "content": "!"}]}
    assert is_conversational(row)
    assert one(row).weights == [0, 0, 0, 1]
    texts = {"prompt": "2 + 2 =", "completion": " 4"}
    assert [message.role for message in one(texts).messages] == ["user", "assistant"]
    assert (one(texts).plain, one(texts, "plain").plain, one(texts, "plain").weights) == (False, True, [0, 1])


@pytest.mark.parametrize("suffix", ["jsonl", "json", "jsonl.gz", "jsonl.zst", "parquet", "arrow", "saved", "splits"])
def test_all_containers_give_the_same_conversations(tmp_path: Path, suffix: str) -> None:
    """Arrow fills ragged rows with nulls: what is read is the same."""
    rows: list[dict[str, Any]] = [
        {
            "messages": [
                {"role": "user", "content": "Hi"},
                {"role": "assistant", "content": "Ho", "thinking": "greet"},
            ],
            "tools": None,
        },
        {
            "messages": [{"role": "assistant", "content": "", "tool_calls": [{"name": "run", "arguments": {"x": 1}}]}],
            "tools": [{"name": "run", "parameters": {"type": "object"}}],
        },
    ]
    path = tmp_path / f"rows.{suffix}"
    lines = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    table, spec = Dataset.from_list(rows), str(path)
    if suffix == "jsonl":
        path.write_bytes(lines)
    elif suffix == "json":
        path.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    elif suffix == "jsonl.gz":
        path.write_bytes(gzip.compress(lines))
    elif suffix == "jsonl.zst":
        import zstandard

        path.write_bytes(zstandard.compress(lines))
    elif suffix == "parquet":
        table.to_parquet(path)
    elif suffix == "arrow":
        table.save_to_disk(str(tmp_path / "saved"))
        (found,) = (tmp_path / "saved").glob("*.arrow")
        spec = str(found)
    else:
        (table if suffix == "saved" else DatasetDict({"train": table})).save_to_disk(str(path))
        spec = f"hf:{path}:train"
    assert [one(row) for _, row in stream_rows(spec)] == [one(row) for row in rows]
