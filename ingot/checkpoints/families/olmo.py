"""OLMo 2 and OLMo 3: norms after the parts, and over all heads of queries and keys at once.

OLMo 3 has windows in three of four layers, and may stretch the rotation of the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ingot.checkpoints.families.common import (
    ACTIVATIONS,
    FULL,
    SLIDING,
    attention_layout,
    common_config,
    feed_forward_layout,
    make_model,
    need,
    norm_layout,
    read_activation,
    read_attention,
    read_layer_types,
    rope_of,
    stack_layout,
    write_attention,
    write_layer_types,
)
from ingot.checkpoints.families.family import Family, Layout
from ingot.checkpoints.families.keys import Keys
from ingot.checkpoints.families.rotary import read_rope, write_rope_keys, write_ropes_by_type
from ingot.model.config import BlockConfig, ModelConfig
from ingot.model.feed_forward.dense import FeedForwardConfig
from ingot.model.mixers.attention import AttentionConfig
from ingot.model.positions.config import RopeConfig


def read_olmo2(keys: Keys) -> ModelConfig:
    depth = keys.need("num_hidden_layers")
    return _read(keys, [read_rope(keys)] * depth, [None] * depth)


def write_olmo2(config: ModelConfig) -> Mapping[str, Any]:
    return _write(config) | write_rope_keys(rope_of(config))


def read_olmo3(keys: Keys) -> ModelConfig:
    depth = keys.need("num_hidden_layers")
    types = read_layer_types(keys, depth, lambda layer: SLIDING if (layer + 1) % 4 else FULL)
    ropes = {kind: read_rope(keys, base=500_000.0, layer_type=kind) for kind in (FULL, SLIDING)}
    window = keys.raw("sliding_window", 4096)
    return _read(keys, [ropes[kind] for kind in types], [window if kind == SLIDING else None for kind in types])


def write_olmo3(config: ModelConfig) -> Mapping[str, Any]:
    ropes = write_ropes_by_type(rope_of(config, windowed=False), rope_of(config, windowed=True))
    return _write(config) | write_layer_types(config) | ropes


def _read(keys: Keys, ropes: list[RopeConfig], windows: list[int | None]) -> ModelConfig:
    bias = keys.get("attention_bias", False)
    attention = read_attention(keys, query_key_norm="full", query_key_value_bias=bias, output_bias=bias)
    feed_forward = {"width": keys.get("intermediate_size", 11008), "activation": read_activation(keys)}
    blocks = [
        {
            "mixer": {**attention, "rope": rope, "window": window},
            "feed_forward": feed_forward,
            "residual": "post",
        }
        for rope, window in zip(ropes, windows, strict=True)
    ]
    return make_model(keys, blocks, epsilon=1e-5, norm={"cast": "after_gain"})


def _write(config: ModelConfig) -> dict[str, Any]:
    attention, feed_forward = need(config, AttentionConfig), need(config, FeedForwardConfig)
    return {
        **common_config(config),
        **write_attention(attention),
        "attention_bias": attention.query_key_value_bias,
        "intermediate_size": feed_forward.width,
        "hidden_act": ACTIVATIONS.get(feed_forward.activation),
    }


def block_layout(ours: str, theirs: str, block: BlockConfig) -> Layout:
    """A norm after each of the two parts; `post_attention_layernorm` is another norm than in Llama."""
    assert isinstance(block.mixer, AttentionConfig) and isinstance(block.feed_forward, FeedForwardConfig)
    names = {"mixer_post_norm": "post_attention_layernorm", "feed_forward_post_norm": "post_feedforward_layernorm"}
    layout = norm_layout(ours, theirs, **names)
    layout |= attention_layout(f"{ours}mixer.", f"{theirs}self_attn.", block.mixer)
    return layout | feed_forward_layout(f"{ours}feed_forward.", f"{theirs}mlp.", block.feed_forward)


def olmo_layout(config: ModelConfig) -> Layout:
    return stack_layout(config, block_layout)


OLMO2 = Family(("olmo2",), "Olmo2ForCausalLM", read_olmo2, write_olmo2, olmo_layout)
OLMO3 = Family(("olmo3",), "Olmo3ForCausalLM", read_olmo3, write_olmo3, olmo_layout)
