"""Tiny models in milliseconds, in every shape that the parts allow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from hypothesis import strategies as st

from ingot.model.config import BlockConfig, ModelConfig
from ingot.model.feed_forward.dense import FeedForwardConfig
from ingot.model.mixers.attention import AttentionConfig
from ingot.model.positions.config import RopeConfig
from ingot.model.transformer import Transformer

VOCABULARY = 61


def attention(**changes: Any) -> AttentionConfig:
    """Four query heads on two key heads."""
    return AttentionConfig.model_validate({"heads": 4, "key_value_heads": 2, "head_width": 8, **changes})


def config(*attentions: AttentionConfig, **changes: Any) -> ModelConfig:
    """A model whose layers cycle through `attentions`; as many layers as these, and at least two."""
    mixers = attentions or (attention(),)
    return ModelConfig.model_validate({**layered(mixers, changes.pop("depth", max(2, len(mixers)))), **changes})


def layered(mixers: Sequence[AttentionConfig], depth: int) -> dict[str, Any]:
    """The fields of a small model of `depth` layers that cycle through `mixers`."""
    blocks = {
        f"layer{number}": BlockConfig(mixer=mixer, feed_forward=FeedForwardConfig(width=40))
        for number, mixer in enumerate(mixers)
    }
    layers = " ".join(f"layer{layer % len(mixers)}" for layer in range(depth))
    return {"vocabulary_size": VOCABULARY, "width": 24, "blocks": blocks, "layers": layers, "context": 64}


def mixed_config(**changes: Any) -> ModelConfig:
    """A window with norms and biases, a layer without positions, and another base: every part of attention at once."""
    return config(
        attention(window=4, query_key_norm="head", query_key_value_bias=True),
        attention(heads=6, key_value_heads=2, rope=None, window=3),
        attention(heads=3, key_value_heads=3, head_width=6, rope=RopeConfig(base=300.0)),
        **changes,
    )


def random_model(shape: ModelConfig, seed: int = 0, scale: float = 0.3) -> Transformer:
    """A model in which no weight is special: gains and biases are random too."""
    model = Transformer(shape)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            parameter.normal_(0.0, scale, generator=generator)
            if name.endswith("gain"):
                parameter.add_(1.0)
    return model


def random_tokens(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, shape, generator=torch.Generator().manual_seed(seed))


@st.composite
def attentions(draw: st.DrawFn) -> AttentionConfig:
    """Any attention of up to six heads."""
    key_value_heads = draw(st.integers(1, 3))
    return AttentionConfig(
        heads=key_value_heads * draw(st.integers(1, 3)),
        key_value_heads=key_value_heads,
        head_width=2 * draw(st.integers(1, 5)),
        rope=draw(st.sampled_from([RopeConfig(), RopeConfig(base=50.0), None])),
        query_key_norm=draw(st.sampled_from(["none", "head", "full", "after_rope"])),
        query_key_value_bias=draw(st.booleans()),
        window=draw(st.none() | st.integers(1, 9)),
    )


@st.composite
def configs(draw: st.DrawFn) -> ModelConfig:
    """Any small model."""
    blocks = {
        name: BlockConfig(
            mixer=draw(attentions()),
            feed_forward=FeedForwardConfig(width=draw(st.integers(1, 20)), activation=draw(ACTIVATIONS)),
        )
        for name in draw(st.sampled_from(["a", "ab", "abc"]))
    }
    return ModelConfig(
        vocabulary_size=draw(st.integers(1, 70)),
        width=draw(st.integers(1, 20)),
        blocks=blocks,
        layers=" ".join(draw(st.lists(st.sampled_from(sorted(blocks)), min_size=1, max_size=5))),
        tied_embeddings=draw(st.booleans()),
    )


ACTIVATIONS = st.sampled_from(["silu", "gelu_tanh"])
