"""gpt-oss: attention sinks, windows in every other layer, YaRN, and mixtures of clamped experts with biases.

Experts are stacked and stored as [experts, in, out], gate and up alternating channel by channel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ingot.checkpoints.families.common import (
    FULL,
    SLIDING,
    attention_layout,
    blocks_of,
    common_config,
    embedding_layout,
    make_model,
    need,
    norm_layout,
    read_attention,
    read_layer_types,
    rope_of,
    write_attention,
    write_layer_types,
)
from ingot.checkpoints.families.family import Family, Layout, TensorMap, ViewPair, maps_to
from ingot.checkpoints.families.keys import Keys
from ingot.checkpoints.families.rotary import read_rope, write_rope_keys
from ingot.model.config import BlockConfig, ModelConfig
from ingot.model.feed_forward.mixture import MoeConfig
from ingot.model.mixers.attention import AttentionConfig

CONTEXT = 131_072
YARN = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}
"""What the transformers class takes where a config.json says nothing of the rotation."""


def read_gpt_oss(keys: Keys) -> ModelConfig:
    keys.ignore(
        "hidden_act", "initial_context_length", "experts_per_token"
    )  # fixed, and two older copies of other keys
    keys.expect(swiglu_alpha=1.702)
    if not keys.has("rope_parameters") and not keys.has("rope_scaling"):
        keys = keys.having(rope_parameters=YARN)
    depth, bias = keys.need("num_hidden_layers"), keys.get("attention_bias", True)
    types = read_layer_types(keys, depth, lambda layer: SLIDING if (layer + 1) % 2 else FULL)
    rope, window = read_rope(keys, base=150_000.0, context=CONTEXT), keys.raw("sliding_window", 128)
    attention = read_attention(
        keys,
        heads=64,
        key_value_heads=8,
        head_width=64,
        query_key_value_bias=bias,
        output_bias=bias,
        sinks=True,
        rope=rope,
    )
    expert = {
        "width": keys.get("intermediate_size", 2880),
        "activation": "swish_1702",
        "bias": True,
        "clamp": keys.get("swiglu_limit", 7.0),
        "up_offset": 1.0,
    }
    mixture = {
        "kind": "moe",
        "experts": keys.get("num_local_experts", keys.get("num_experts", 128)),
        "active": keys.get("num_experts_per_tok", 4),
        "expert": expert,
        "router": {"score": "top_k_softmax", "bias": True},
    }
    blocks = [
        {"mixer": {**attention, "window": window if kind == SLIDING else None}, "feed_forward": mixture}
        for kind in types
    ]
    return make_model(keys, blocks, epsilon=1e-5, context=CONTEXT, norm={"cast": "after_gain"})


def write_gpt_oss(config: ModelConfig) -> Mapping[str, Any]:
    attention, mixture = need(config, AttentionConfig), need(config, MoeConfig)
    return {
        **common_config(config),
        **write_attention(attention),
        **write_layer_types(config),
        **write_rope_keys(rope_of(config)),
        "attention_bias": attention.query_key_value_bias,
        "num_local_experts": mixture.experts,
        "num_experts_per_tok": mixture.active,
        "intermediate_size": mixture.expert.width,
        "swiglu_limit": mixture.expert.clamp,
        "hidden_act": "silu",
    }


def block_layout(ours: str, theirs: str, block: BlockConfig, width: int) -> Layout:
    """`width` is that of the stream."""
    assert isinstance(block.mixer, AttentionConfig) and isinstance(block.feed_forward, MoeConfig)
    layout = norm_layout(ours, theirs, mixer_norm="input_layernorm", feed_forward_norm="post_attention_layernorm")
    layout |= attention_layout(f"{ours}mixer.", f"{theirs}self_attn.", block.mixer)
    layout[f"{theirs}self_attn.sinks"] = maps_to(f"{ours}mixer.sinks")
    count, inner = block.feed_forward.experts, block.feed_forward.expert.width
    ours, theirs = f"{ours}feed_forward.", f"{theirs}mlp."
    return layout | {
        f"{theirs}router.weight": maps_to(f"{ours}router.weight"),
        f"{theirs}router.bias": maps_to(f"{ours}router.bias"),
        f"{theirs}experts.gate_up_proj": alternating(f"{ours}experts.gate_up", (count, width, 2 * inner)),
        f"{theirs}experts.gate_up_proj_bias": alternating(f"{ours}experts.gate_up_bias", (count, 2 * inner)),
        f"{theirs}experts.down_proj": maps_to(f"{ours}experts.down", in_then_out),
        f"{theirs}experts.down_proj_bias": maps_to(f"{ours}experts.down_bias"),
    }


def alternating(parameter: str, shape: tuple[int, ...]) -> TensorMap:
    """Their last axis is g₀ u₀ g₁ u₁ …; ours is [gate | up], the rows of each expert's matrix."""
    inner = shape[-1] // 2
    gate = ViewPair(parameter, lambda x: in_then_out(x[:, :inner]), lambda x: x[..., 0::2])
    up = ViewPair(parameter, lambda x: in_then_out(x[:, inner:]), lambda x: x[..., 1::2])
    return TensorMap((gate, up), shape)


def in_then_out(tensor: Tensor) -> Tensor:
    """The matrices of all experts, transposed; biases as they are."""
    return tensor.transpose(1, 2) if tensor.dim() == 3 else tensor


def gpt_oss_layout(config: ModelConfig) -> Layout:
    layout = embedding_layout(config)
    for layer, block in enumerate(blocks_of(config)):
        layout |= block_layout(f"blocks.{layer}.", f"model.layers.{layer}.", block, config.width)
    return layout


GPT_OSS = Family(("gpt_oss",), "GptOssForCausalLM", read_gpt_oss, write_gpt_oss, gpt_oss_layout)
