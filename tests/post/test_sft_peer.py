"""SFT against transformers and TRL: the same conversations, the same tokens, mask, loss and gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from transformers import DataCollatorForSeq2Seq
from trl import SFTConfig, SFTTrainer

from ingot.envs.config import TaskMixConfig
from ingot.envs.mix import TaskMix
from ingot.post.data.conversations.sequences import PoolSource, as_sequence
from ingot.tokens.batch import TokenSequence
from ingot.tokens.chat import ChatFormat, Message, ToolCall
from ingot.tokens.tokenizer import Tokenizer
from ingot.train.losses.terms import CrossEntropy
from ingot.workspace.stage import StageFolder
from tests.post.making import one_step, tiny_model
from tests.post.peers import PLAIN, gradient_difference, llama, peer_tokenizer

TOOLS: list[dict[str, Any]] = [{"name": "calculator"}]


def conversations() -> list[tuple[list[Message], list[dict[str, Any]], bool]]:
    """One turn, two turns, a tool between two turns; with and without thinking."""
    return [
        ([Message("user", "2 + 2?"), Message("assistant", "4")], [], False),
        (
            [
                Message("system", "Be short."),
                Message("user", "Hi"),
                Message("assistant", "Ho", thinking="greet"),
                Message("user", "1 + 2?"),
                Message("assistant", "3", thinking="1 2 3"),
            ],
            [],
            True,
        ),
        (
            [
                Message("user", "12 * 12?"),
                Message("assistant", "", "big", [ToolCall("calculator", {"expression": "12*12"})]),
                Message("tool", "144"),
                Message("assistant", "144", thinking="read"),
            ],
            TOOLS,
            True,
        ),
    ]


def batch_for_transformers(sequences: list[TokenSequence], tokenizer: Tokenizer) -> Any:
    """The sequences padded by transformers, labels −100 where the weight is 0."""
    rows = [
        {
            "input_ids": sequence.tokens,
            "attention_mask": [1] * len(sequence.tokens),
            "labels": [t if w else -100 for t, w in zip(sequence.tokens, sequence.streams["weight"], strict=True)],
        }
        for sequence in sequences
    ]
    return DataCollatorForSeq2Seq(peer_tokenizer(tokenizer), return_tensors="pt")(rows)


@pytest.mark.parametrize("source_of_conversations", ["by hand", "tasks"])
def test_the_step_equals_transformers(
    tokenizer: Tokenizer,
    chat: ChatFormat,
    make_folder: Callable[[str], StageFolder],
    source_of_conversations: str,
) -> None:
    rows = conversations()
    if source_of_conversations == "tasks":
        mix = TaskMix(TaskMixConfig())
        tasks = [task for task in mix.generate(3, 12, "train") if not task.tools]
        rows = [([*task.messages, *mix.solution(task)], [], task.thinking) for task in tasks]
    sequences = [as_sequence(chat, *row) for row in rows]
    longest = max(len(sequence.tokens) for sequence in sequences)
    model = tiny_model(tokenizer)
    peer = llama(model)
    loss = peer(**batch_for_transformers(sequences, tokenizer)).loss
    loss.backward()
    source = PoolSource([[sequence] for sequence in sequences], len(sequences), longest, 2 * longest, seed=0)
    step = one_step(model, [CrossEntropy()], source, make_folder("ours"))
    assert step.metrics["loss"] == pytest.approx(loss.item(), abs=5e-6)
    assert gradient_difference(model, step.gradients, peer) < 1e-5


def test_the_step_equals_trl_with_assistant_only_loss(
    tokenizer: Tokenizer, chat: ChatFormat, make_folder: Callable[[str], StageFolder], tmp_path: Path
) -> None:
    """TRL renders and masks by itself, from messages and the template; tokens, mask, loss and gradients agree."""
    rows = conversations()
    sequences = [as_sequence(chat, *row) for row in rows]
    table = [
        {
            "messages": [message.to_dict() for message in messages],
            "tools": tools or None,
            "chat_template_kwargs": {"enable_thinking": thinking},
        }
        for messages, tools, thinking in rows
    ]
    model = tiny_model(tokenizer)
    peer = llama(model)
    config = SFTConfig(output_dir=str(tmp_path), assistant_only_loss=True, max_length=None, **PLAIN)
    trainer = SFTTrainer(
        peer, config, train_dataset=Dataset.from_list(table), processing_class=peer_tokenizer(tokenizer)
    )
    theirs = list(trainer.train_dataset)
    assert [row["input_ids"] for row in theirs] == [sequence.tokens for sequence in sequences]
    batch = trainer.data_collator(copy.deepcopy(theirs))
    for row, sequence in zip(batch["labels"].tolist(), sequences, strict=True):
        expected = [t if w else -100 for t, w in zip(sequence.tokens, sequence.streams["weight"], strict=True)]
        assert row[: len(expected)] == expected
    loss = trainer.compute_loss(trainer.model, batch)
    loss.backward()
    source = PoolSource([[sequence] for sequence in sequences], len(sequences), 200, 1, seed=0)
    step = one_step(model, [CrossEntropy()], source, make_folder("ours"))
    assert step.metrics["loss"] == pytest.approx(loss.item(), abs=5e-6)
    assert gradient_difference(model, step.gradients, peer) < 1e-5
