"""A model that has learnt three conversations by heart: enough to talk to, in about a second of training."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch.nn.functional import cross_entropy

from ingot.model.config import BlockConfig, InitialConfig, ModelConfig
from ingot.model.feed_forward.dense import FeedForwardConfig
from ingot.model.initialise import initialise
from ingot.model.mixers.attention import AttentionConfig
from ingot.model.transformer import Transformer
from ingot.tokens.chat import ChatFormat, Message, ToolCall
from ingot.tokens.config import TokenizerConfig
from ingot.tokens.tokenizer import Tokenizer
from ingot.tokens.train_tokenizer import train_tokenizer

SCHEMA: dict[str, Any] = {"name": "times", "parameters": {"type": "object"}}
QUESTION, GREETING, FAREWELL = "What is 12*34?", "Hello", "Bye"


def train_small_tokenizer() -> Tokenizer:
    """Little more than the bytes; digits are tokens of their own."""
    return train_tokenizer(
        ["the sum of the numbers is the sum of the numbers. " * 20], TokenizerConfig(vocabulary_size=300)
    )


def speaker_config(tokenizer: Tokenizer, context: int = 256) -> ModelConfig:
    """Two layers of width 64."""
    block = BlockConfig(
        mixer=AttentionConfig(heads=4, key_value_heads=2, head_width=16), feed_forward=FeedForwardConfig(width=128)
    )
    return ModelConfig(
        vocabulary_size=tokenizer.vocabulary_size,
        width=64,
        blocks={"layer": block},
        layers="layer*2",
        context=context,
        initial=InitialConfig(std=0.1),
    )


def conversations(chat: ChatFormat) -> list[list[int]]:
    """A tool call with thinking, a greeting without thinking, and a farewell after the tool call."""
    asked = [
        Message("user", QUESTION),
        Message("assistant", "", thinking="call it", tool_calls=[ToolCall("times", {"a": 12, "b": 34})]),
        Message("tool", "408"),
        Message("assistant", "It is 408 — ja.", thinking="done"),
    ]
    farewell = [Message("user", FAREWELL), Message("assistant", "See you", thinking="")]
    greeted = [Message("user", GREETING), Message("assistant", "Good day", thinking=None)]
    return [
        chat.conversation(asked + farewell, [SCHEMA], thinking=True)[0],
        chat.conversation(greeted, [SCHEMA], thinking=False)[0],
        chat.conversation(farewell, [SCHEMA], thinking=True)[0],
    ]


def train_speaker(tokenizer: Tokenizer) -> Transformer:
    """Fit the conversations until the loss is near zero."""
    model = Transformer(speaker_config(tokenizer))
    initialise(model, seed=0)
    model.tokenizer = tokenizer
    rows = conversations(ChatFormat(tokenizer))
    tokens = torch.full((len(rows), max(map(len, rows))), tokenizer.pad)
    for row, ids in enumerate(rows):
        tokens[row, : len(ids)] = torch.tensor(ids)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.8, 0.9), weight_decay=0.0)
    for _ in range(150):
        logits = model(tokens[:, :-1])
        loss = cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=tokenizer.pad)
        if loss.item() < 0.01:
            return model
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
    raise AssertionError("the conversations were not learnt")


@cache
def trained_speaker() -> Transformer:
    """One for all tests that only read it."""
    return train_speaker(train_small_tokenizer())
