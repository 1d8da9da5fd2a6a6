"""Files of preferences: every form that people bring, TRL's tokens for the same rows, and the error of every broken row."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from datasets import Dataset
from trl import DPOConfig, DPOTrainer
from trl.data_utils import extract_prompt

from ingot.envs.rows import read_rows
from ingot.post.data.pairs.pair import FileAnswer
from ingot.post.data.pairs.pair_file import FileRows, read_pairs
from ingot.post.data.pairs.pair_rows import PreferenceRow, read_row
from ingot.tokens.chat import ChatFormat, Message, ToolCall
from ingot.tokens.tokenizer import Tokenizer
from ingot.workspace.errors import DataError
from tests.making.rows import write_rows
from tests.post.making import tiny_model
from tests.post.peers import PLAIN, llama, peer_tokenizer

QUESTION, GOOD, BAD = Message("user", "1 + 1?"), Message("assistant", "2"), Message("assistant", "3")
USER = {"role": "user", "content": "1 + 1?"}
RIGHT, WRONG = {"role": "assistant", "content": "2"}, {"role": "assistant", "content": "3"}
PLAIN_PAIR = PreferenceRow([QUESTION], ([GOOD], [BAD]))


def write(path: Path, rows: Sequence[Any]) -> str:
    write_rows(path, rows)
    return str(path)


def read(path: str, chat: ChatFormat, *, paired: bool = True, longest: int = 10**6) -> FileRows:
    return read_pairs([path], chat, longest, "error", paired=paired)


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "1 + 1?", "chosen": "2", "rejected": "3"},
        {"prompt": [USER], "chosen": [RIGHT], "rejected": [WRONG]},
        {"prompt": [USER], "chosen": "2", "rejected": "3", "thinking": None},
        {"chosen": [USER, RIGHT], "rejected": [USER, WRONG]},
        {"prompt": "1 + 1?", "chosen": [USER, RIGHT], "rejected": [USER, WRONG], "score_chosen": 8.0},  # UltraFeedback
        {"chosen": "\n\nHuman: 1 + 1?\n\nAssistant: 2", "rejected": "\n\nHuman: 1 + 1?\n\nAssistant: 3"},  # hh-rlhf
        {"chosen": "1 + 1? 2", "rejected": "1 + 1? 3"},
        {
            "conversations": [{"from": "human", "value": "1 + 1?"}],
            "chosen": {"from": "gpt", "value": "2"},
            "rejected": {"from": "gpt", "value": "3"},
        },
        {"instruction": "1 + 1?", "input": "", "output": "2", "chosen": "2", "rejected": "3"},
        {"input": {"messages": [USER]}, "preferred_output": [RIGHT], "non_preferred_output": [WRONG]},
    ],
    ids=[
        "texts", "messages", "mixed", "common prefix", "prompt twice", "transcript", "common words", "LLaMA-Factory",
        "Alpaca", "OpenAI",
    ],
)  # fmt: skip
def test_every_form_says_the_same(row: dict[str, Any]) -> None:
    assert read_row(row) == PLAIN_PAIR


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "1 + 1?", "completion": "3", "label": False},
        {"prompt": [USER], "completion": [WRONG], "label": False},
        {"messages": [USER, WRONG], "label": False},
        {"instruction": "1 + 1?", "output": "3", "kto_tag": False},
    ],
)
def test_rated_answers(row: dict[str, Any]) -> None:
    assert read_row(row) == PreferenceRow([QUESTION], ([BAD],), label=False)


def test_alpaca_rows_with_a_system_text_and_a_history() -> None:
    row = {"instruction": "1 + 1?", "input": "Briefly.", "system": "Count.", "history": [["Hi", "Hello"]]}
    found = read_row(row | {"chosen": "2", "rejected": "3"})
    turns = [Message("system", "Count."), Message("user", "Hi"), Message("assistant", "Hello")]
    assert found.prompt == [*turns, Message("user", "1 + 1?\nBriefly.")]


def test_answers_of_several_turns_and_tools(tmp_path: Path, chat: ChatFormat, tokenizer: Tokenizer) -> None:
    """Calls as OpenAI writes them; only what the assistant writes after the prompt is compared."""
    function = {"name": "add", "arguments": '{"a": 1}'}
    calling = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "x", "type": "function", "function": function}],
    }
    output = {"role": "tool", "tool_call_id": "x", "content": "2"}
    tools = [{"type": "function", "function": {"name": "add", "parameters": {}}}]
    before = [USER, WRONG, {"role": "user", "content": "No."}]
    row = {
        "input": {"messages": before, "tools": tools, "parallel_tool_calls": True},
        "preferred_output": [calling, output, RIGHT],
        "non_preferred_output": [WRONG],
    }
    found = read_row(row)
    assert found.answers[0][0].tool_calls == [ToolCall("add", {"a": 1})]
    (with_trace, without) = read(write(tmp_path / "rows.jsonl", [row]), chat).pairs
    for pair, trace in ((with_trace, "<think></think>"), (without, "")):
        call = '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>'
        assert marked_text(pair.chosen, tokenizer) == f"{trace}{call}<|im_end|>{trace}2<|im_end|>"
        assert marked_text(pair.rejected, tokenizer) == f"{trace}3<|im_end|>"
        start = pair.rejected.marks.index(1)
        assert pair.chosen.ids[:start] == pair.rejected.ids[:start]


def marked_text(written: FileAnswer, tokenizer: Tokenizer) -> str:
    return tokenizer.decode([token for token, one in zip(written.ids, written.marks, strict=True) if one])


def test_parquet_and_compressed_files(tmp_path: Path, chat: ChatFormat) -> None:
    """Arrow fills the keys that some messages lack with nulls: they are as if they were not there."""
    rows = [
        {"prompt": [USER], "chosen": [RIGHT], "rejected": [{**WRONG, "thinking": "a trace"}]},
        {"prompt": [USER], "chosen": [WRONG], "rejected": [RIGHT]},
    ]
    plain = read(write(tmp_path / "rows.jsonl", rows), chat)
    packed = tmp_path / "rows.jsonl.gz"
    packed.write_bytes(gzip.compress((tmp_path / "rows.jsonl").read_bytes()))
    table = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), table)
    assert len(plain.pairs) == 3  # the row without a trace is learnt in both modes
    assert read(str(packed), chat) == plain
    assert read(str(table), chat) == plain


def test_tokens_are_those_of_trl(tokenizer: Tokenizer, chat: ChatFormat, tmp_path: Path, shared_data: Path) -> None:
    """Real pairs of several turns, tokenised by TRL's trainer with the same tokenizer and chat template."""
    rows = [row for _, row in read_rows(str(shared_data / "hh_rlhf" / "helpful_base_test.jsonl.gz"))[:40]]
    messages = [
        {
            name: [message.to_dict() for message in [*read_row(row).prompt, *answer]]
            for name, answer in zip(("chosen", "rejected"), read_row(row).answers, strict=True)
        }
        for row in rows
    ]
    split = [extract_prompt(row) for row in messages]
    for row, theirs in zip(rows, split, strict=True):
        assert [message.to_dict() for message in read_row(row).prompt] == theirs["prompt"]
    data = Dataset.from_list([row | {"chat_template_kwargs": {"enable_thinking": False}} for row in split])
    config = DPOConfig(output_dir=str(tmp_path), max_length=None, **PLAIN)
    model, reference = (llama(tiny_model(tokenizer)) for _ in range(2))
    trainer = DPOTrainer(model, reference, config, train_dataset=data, processing_class=peer_tokenizer(tokenizer))
    path = write(tmp_path / "rows.jsonl", [row | {"thinking": False} for row in rows])
    for ours, theirs in zip(read(path, chat).pairs, trainer.train_dataset, strict=True):
        for half, ids in ((ours.chosen, theirs["chosen_ids"]), (ours.rejected, theirs["rejected_ids"])):
            assert half.ids == theirs["prompt_ids"] + ids
            end = len(half.ids) - len(tokenizer.encode("\n"))  # what follows the end of a turn is not the model's
            assert half.marks == [0] * len(theirs["prompt_ids"]) + [1] * (end - len(theirs["prompt_ids"])) + [0]


@pytest.mark.parametrize(
    ("name", "pairs", "rated"),
    [
        ("llamafactory_demo/dpo_en_demo", 299, 0),
        ("llamafactory_demo/kto_en_demo", 0, 300),
        ("rasbt_instruct/instruction_data_with_preference", 1100, 0),
    ],
)
def test_real_files(name: str, pairs: int, rated: int, shared_data: Path) -> None:
    rows = [read_row(row) for _, row in read_rows(str(shared_data / f"{name}.jsonl.gz"))]
    assert sum(row.label is None for row in rows) == pairs
    assert sum(row.label is not None for row in rows) == rated
    assert all(row.prompt[-1].role in ("user", "tool") and row.answers[0][-1].role == "assistant" for row in rows)


PAIR = {"prompt": "1 + 1?", "chosen": "2", "rejected": "3"}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"prompt": "1 + 1?", "chosen": "2"}, "neither a pair nor a rated answer: it has chosen, prompt"),
        ({"chosen": "yes", "rejected": "no"}, "do not begin alike"),
        ({"chosen": [RIGHT], "rejected": [WRONG]}, "do not begin with the same messages"),
        ({**PAIR, "chosen": 2}, "chosen: neither a text nor a list of messages"),
        (
            {**PAIR, "chosen": [{"role": "assistant", "content": 2}]},
            "chosen, message 0: `content` is neither",
        ),
        ({**PAIR, "rejected": [{"role": "wizard", "content": "3"}]}, "rejected, message 0: unknown role 'wizard'"),
        ({**PAIR, "rejected": [RIGHT, USER]}, "rejected: the last message is not the assistant's"),
        ({**PAIR, "thinking": "yes"}, "`thinking` of the row is 'yes'"),
        ({**PAIR, "tools": [3]}, "`tools` is not a list of tool schemas"),
        ({"prompt": "1 + 1?", "completion": "2", "label": 1}, "`label` is 1"),
        ({"prompt": "1 + 1?", "completion": "2", "label": True}, "one rated answer, and the algorithm compares two"),
        ({"messages": [USER], "label": True}, "no answer in this row"),
        ({**PAIR, "chosen": [{"role": "assistant", "tool_calls": [{"name": "f", "arguments": "{"}]}]}, "not JSON"),
    ],
)
def test_a_broken_row_is_named(row: dict[str, Any], message: str, tmp_path: Path, chat: ChatFormat) -> None:
    path = write(tmp_path / "rows.jsonl", [PAIR, row])
    with pytest.raises(DataError) as error:
        read(path, chat)
    assert str(error.value).startswith(f"{path}:2") and message in str(error.value)
    assert error.value.fix


def test_a_loss_of_rated_answers_refuses_pairs(tmp_path: Path, chat: ChatFormat) -> None:
    with pytest.raises(DataError, match=r"rows\.jsonl:1: this row is a pair, and the algorithm takes single rated"):
        read(write(tmp_path / "rows.jsonl", [PAIR]), chat, paired=False)


def test_long_rows_are_an_error_or_left_out(tmp_path: Path, chat: ChatFormat) -> None:
    long = {**PAIR, "rejected": "3" * 50}
    path = write(tmp_path / "rows.jsonl", [PAIR, long, PAIR])
    with pytest.raises(DataError, match=r"rows\.jsonl:2: the longer conversation has \d+ tokens, a row .* takes 40"):
        read(path, chat, longest=40)
    found = read_pairs([path], chat, 40, "leave_out", paired=True)
    assert (len(found.pairs), found.left_out) == (4, 1)
