"""Tiny models for the tests of sampling, and the reference that needs no cache: the full forward pass."""

from __future__ import annotations

import pytest
import torch

from ingot.model.config import BlockConfig, InitialConfig, ModelConfig
from ingot.model.feed_forward.dense import FeedForwardConfig
from ingot.model.initialise import initialise
from ingot.model.mixers.attention import AttentionConfig
from ingot.model.positions.config import RopeConfig
from ingot.model.transformer import Transformer

VOCABULARY = 97
CONTEXT = 64


def tiny_config(**attention: object) -> ModelConfig:
    """Two layers of width 32 with four query heads on two key heads, everything else by default."""
    parts = {"heads": 4, "key_value_heads": 2, "head_width": 8, **attention}
    block = BlockConfig(
        mixer=AttentionConfig.model_validate(parts), feed_forward=FeedForwardConfig(width=48, activation="silu")
    )
    return ModelConfig(
        vocabulary_size=VOCABULARY,
        width=32,
        blocks={"layer": block},
        layers="layer*2",
        context=CONTEXT,
        initial=InitialConfig(std=0.2),
    )


def tiny_model(config: ModelConfig | None = None, seed: int = 0) -> Transformer:
    """A model with random weights, large enough that its distributions are far from uniform."""
    model = Transformer(config or tiny_config())
    initialise(model, seed)
    return model


def mixed_config() -> ModelConfig:
    """A layer with a window, query/key norms and biases, and a layer without positions."""
    window = AttentionConfig(
        heads=4, key_value_heads=1, head_width=8, window=5, query_key_norm="head", query_key_value_bias=True
    )
    plain = AttentionConfig(heads=4, key_value_heads=4, head_width=8, rope=None)
    rotated = AttentionConfig(heads=4, key_value_heads=2, head_width=8, rope=RopeConfig(base=500.0))
    blocks = {
        name: BlockConfig(mixer=attention, feed_forward=FeedForwardConfig(width=48))
        for name, attention in {"window": window, "plain": plain, "rotated": rotated}.items()
    }
    return ModelConfig(
        vocabulary_size=VOCABULARY,
        width=32,
        blocks=blocks,
        layers="window plain rotated",
        context=CONTEXT,
        tied_embeddings=False,
        initial=InitialConfig(std=0.2),
    )


@torch.no_grad()
def reference_logprobs(model: Transformer, prompt: list[int], tokens: list[int], temperature: float) -> list[float]:
    """log softmax(logits / temperature) of `tokens` after `prompt`, by one full forward pass in float64."""
    logits = model(torch.tensor([prompt + tokens]))[0].double() / (temperature or 1.0)
    table = logits.log_softmax(-1)[len(prompt) - 1 : -1]
    return [float(row[token]) for row, token in zip(table, tokens, strict=True)]


@pytest.fixture
def model() -> Transformer:
    return tiny_model()
