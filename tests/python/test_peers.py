"""The first step of a call, against code of others: transformers' loss on rows that TRL has rendered, and its label smoothing."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from torch.nn.functional import log_softmax
from transformers.modeling_outputs import CausalLMOutput
from transformers.trainer_pt_utils import LabelSmoother
from trl import SFTConfig, SFTTrainer

import ingot
from ingot.train.losses.terms import Distributions
from tests.post.peers import PLAIN, llama, peer_tokenizer
from tests.python.conftest import TINY

ROWS: list[dict[str, Any]] = [
    {"messages": [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}], "thinking": False},
    {
        "messages": [
            {"role": "system", "content": "Be short."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Ho"},
            {"role": "user", "content": "1 + 2?"},
            {"role": "assistant", "content": "3"},
        ],
        "thinking": False,
    },
    {
        "messages": [{"role": "user", "content": "12 * 12 = ?"}, {"role": "assistant", "content": "144 1 2 3"}],
        "thinking": False,
    },
]


def peer(model: Path, folder: Path) -> tuple[Any, Any, Any]:
    """The model in transformers, TRL's batch of the rows, and TRL's trainer."""
    ours = ingot.load(model)
    assert ours.tokenizer is not None
    theirs = llama(ours)
    config = SFTConfig(output_dir=str(folder), assistant_only_loss=True, max_length=None, **PLAIN)
    table = [{"messages": row["messages"], "chat_template_kwargs": {"enable_thinking": False}} for row in ROWS]
    trainer = SFTTrainer(
        theirs, config, train_dataset=Dataset.from_list(table), processing_class=peer_tokenizer(ours.tokenizer)
    )
    return theirs, trainer.data_collator(list(trainer.train_dataset)), trainer


def test_sft_begins_with_the_loss_of_transformers(model: Path, folder: Path) -> None:
    """On the same rows, which TRL renders, encodes and masks by itself."""
    _, batch, trainer = peer(model, folder / "trl")
    loss = trainer.compute_loss(trainer.model, batch)
    result = ingot.sft(model, ROWS, **{**TINY, "steps": 1, "batch_conversations": len(ROWS)})
    assert result.metrics[0]["loss"] == pytest.approx(loss.item(), abs=5e-6)


def smoothed(tokens: Distributions) -> torch.Tensor:
    logprobs = log_softmax(tokens.logits, dim=-1)
    chosen = logprobs.gather(1, tokens.targets[:, None])[:, 0]
    return -(0.9 * chosen + 0.1 * logprobs.mean(-1))


def test_a_loss_of_ones_own_is_label_smoothing_of_transformers(model: Path, folder: Path) -> None:
    """Of conversations, and of the same given as tokens with weights."""
    theirs, batch, _ = peer(model, folder / "trl")
    with torch.no_grad():
        logits = theirs(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    loss = LabelSmoother(epsilon=0.1)(CausalLMOutput(logits=logits), batch["labels"], shift_labels=True)
    result = ingot.fit(model, [ROWS], smoothed, **TINY)
    assert result.metrics[0]["loss"] == pytest.approx(loss.item(), abs=5e-6)
    assert result.metrics[-1]["loss"] < result.metrics[0]["loss"]
    tokens = [
        {"tokens": row[: int(mask.sum())].tolist(), "weight": (labels[: int(mask.sum())] != -100).float().tolist()}
        for row, mask, labels in zip(batch["input_ids"], batch["attention_mask"], batch["labels"], strict=True)
    ]
    by_tokens = ingot.fit(model, [tokens], smoothed, **TINY)
    assert by_tokens.metrics.columns["loss"] == pytest.approx(result.metrics.columns["loss"], abs=1e-6)


def test_batches_without_an_end_are_as_good_as_a_list(model: Path) -> None:
    """Of both so many are taken as there are steps."""
    endless = ingot.fit(model, (ROWS[:2] for _ in count()), smoothed, **TINY)
    again = ingot.fit(model, [ROWS[:2]] * 9, smoothed, **TINY)
    assert endless.folder == again.folder and again.stage.status == "reused"


def test_micro_batches_do_not_change_a_loss_of_ones_own(model: Path) -> None:
    one_row, all_rows = (
        ingot.fit(model, [ROWS * 4], smoothed, **TINY, micro_batch_tokens=size, name=f"of-{size}")
        for size in (128, 9999)
    )
    assert one_row.metrics.columns["loss"] == pytest.approx(all_rows.metrics.columns["loss"], abs=1e-6)
