"""Phi-3 and Phi-4 mini: like Llama, with fused projections, a partial rotation and LongRoPE."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ingot.checkpoints.families.common import (
    ACTIVATIONS,
    common_config,
    make_model,
    need,
    norm_layout,
    read_activation,
    read_attention,
    rope_of,
    stack_layout,
    write_attention,
)
from ingot.checkpoints.families.family import Family, Layout, maps_to
from ingot.checkpoints.families.keys import Keys
from ingot.checkpoints.families.rotary import read_rope, write_rope_keys
from ingot.model.config import BlockConfig, ModelConfig
from ingot.model.feed_forward.dense import FeedForwardConfig
from ingot.model.mixers.attention import AttentionConfig
from ingot.model.positions.config import LongRopeScaling

CONTEXT = 4096


def read_phi3(keys: Keys) -> ModelConfig:
    keys.expect(attention_bias=False, mlp_bias=False, lm_head_bias=False, full_attn_mod=1, interpolate_factor=1)
    rope = read_rope(keys, context=CONTEXT, original=CONTEXT)
    attention = read_attention(keys, rope=rope, window=keys.raw("sliding_window"))
    feed_forward = {"width": keys.get("intermediate_size", 8192), "activation": read_activation(keys)}
    blocks = [{"mixer": attention, "feed_forward": feed_forward}] * keys.need("num_hidden_layers")
    return make_model(keys, blocks, epsilon=1e-5, context=CONTEXT)


def write_phi3(config: ModelConfig) -> Mapping[str, Any]:
    attention, feed_forward = need(config, AttentionConfig), need(config, FeedForwardConfig)
    rope = rope_of(config)
    longrope = rope.scaling if rope is not None and isinstance(rope.scaling, LongRopeScaling) else None
    return {
        **common_config(config),
        **write_attention(attention),
        **write_rope_keys(rope),
        "original_max_position_embeddings": longrope.original_context if longrope else config.context,
        "sliding_window": attention.window,
        "intermediate_size": feed_forward.width,
        "hidden_act": ACTIVATIONS.get(feed_forward.activation),
    }


def block_layout(ours: str, theirs: str, block: BlockConfig) -> Layout:
    """The fused matrices are ours: [queries | keys | values] and [gate | up]."""
    names = {
        "self_attn.qkv_proj": "mixer.query_key_value",
        "self_attn.o_proj": "mixer.output",
        "mlp.gate_up_proj": "feed_forward.gate_up",
        "mlp.down_proj": "feed_forward.down",
    }
    layout = norm_layout(ours, theirs, mixer_norm="input_layernorm", feed_forward_norm="post_attention_layernorm")
    return layout | {f"{theirs}{name}.weight": maps_to(f"{ours}{part}.weight") for name, part in names.items()}


def phi_layout(config: ModelConfig) -> Layout:
    return stack_layout(config, block_layout)


PHI3 = Family(("phi3",), "Phi3ForCausalLM", read_phi3, write_phi3, phi_layout)
