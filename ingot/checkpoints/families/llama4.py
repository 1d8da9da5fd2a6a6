"""Llama 4 (text): chunks of local attention with positions, full attention without, and mixtures that weigh their input.

Rotation pairs neighbouring channels; queries and keys are normed after it, without a gain. Full layers scale their queries
with the position instead. Experts are stacked and stored as [experts, in, out].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ingot.checkpoints.families.common import (
    ACTIVATIONS,
    FULL,
    attention_layout,
    blocks_of,
    common_config,
    feed_forward_layout,
    first,
    make_model,
    need,
    norm_layout,
    read_activation,
    read_attention,
    read_layer_types,
    rope_of,
    stack_layout,
    write_attention,
)
from ingot.checkpoints.families.family import Family, Layout, maps_to
from ingot.checkpoints.families.keys import Keys
from ingot.checkpoints.families.mixture import sparse_layers
from ingot.checkpoints.families.rotary import read_rope, write_rope_keys
from ingot.model.config import BlockConfig, ModelConfig
from ingot.model.feed_forward.dense import FeedForwardConfig
from ingot.model.feed_forward.mixture import MoeConfig
from ingot.model.mixers.attention import AttentionConfig, TemperatureConfig

CONTEXT = 131_072
CHUNKED = "chunked_attention"


def read_llama4(keys: Keys) -> ModelConfig:
    keys.ignore("for_llm_compressor")
    depth, bias = keys.need("num_hidden_layers"), keys.get("attention_bias", False)
    interval = keys.get("no_rope_layer_interval", 4)
    rotated = keys.raw("no_rope_layers") or [int((layer + 1) % interval != 0) for layer in range(depth)]
    types = read_layer_types(keys, depth, lambda layer: CHUNKED if rotated[layer] else FULL, (FULL, CHUNKED))
    attention = read_attention(
        keys, heads=40, key_value_heads=8, head_width=128, query_key_value_bias=bias, output_bias=bias
    )
    rope = read_rope(keys, base=500_000.0, pairing="interleaved", context=CONTEXT)
    temperature = {"slope": keys.get("attn_scale", 0.1), "floor": keys.get("floor_scale", 8192)}
    with_positions = {"rope": rope, "query_key_norm": "after_rope" if keys.get("use_qk_norm", True) else "none"}
    without = {"rope": None, "temperature": temperature if keys.get("attn_temperature_tuning", True) else None}
    chunk = keys.raw("attention_chunk_size", 8192)
    step = keys.get("interleave_moe_layer_step", 1)
    sparse = keys.raw("moe_layers")
    sparse = range(step - 1, depth, step) if sparse is None else sparse
    width, activation = keys.get("intermediate_size", 8192), read_activation(keys)
    mixture = {
        "kind": "moe",
        "experts": keys.get("num_local_experts", 16),
        "active": keys.get("num_experts_per_tok", 1),
        "expert": {"width": width, "activation": activation},
        "shared": {"width": width, "activation": activation},
        "router": {"score": "sigmoid_input"},
    }
    dense = {"width": keys.get("intermediate_size_mlp", 16384), "activation": activation}
    blocks = [
        {
            "mixer": {
                **attention,
                **(with_positions if rotated[layer] else without),
                "chunk": chunk if types[layer] == CHUNKED else None,
            },
            "feed_forward": mixture if layer in sparse else dense,
        }
        for layer in range(depth)
    ]
    return make_model(keys, blocks, epsilon=1e-5, context=CONTEXT)


def write_llama4(config: ModelConfig) -> Mapping[str, Any]:
    attention, mixture, dense = need(config, AttentionConfig), need(config, MoeConfig), first(config, FeedForwardConfig)
    mixers = [block.mixer for block in blocks_of(config) if isinstance(block.mixer, AttentionConfig)]
    temperatures = [one.temperature for one in mixers if one.temperature is not None]
    temperature = temperatures[0] if temperatures else TemperatureConfig()
    chunks = [one.chunk for one in mixers]
    return {
        **common_config(config),
        **write_attention(attention),
        **write_rope_keys(rope_of(config)),
        "attention_bias": attention.query_key_value_bias,
        "use_qk_norm": any(one.query_key_norm == "after_rope" for one in mixers),
        "no_rope_layers": [int(one.rope is not None) for one in mixers],  # despite the name, 1 means: with positions
        "layer_types": [FULL if chunk is None else CHUNKED for chunk in chunks],
        "attention_chunk_size": next((chunk for chunk in chunks if chunk is not None), config.context),
        "attn_temperature_tuning": bool(temperatures),
        "attn_scale": temperature.slope,
        "floor_scale": temperature.floor,
        "intermediate_size": mixture.expert.width,
        "intermediate_size_mlp": mixture.expert.width if dense is None else dense.width,
        "num_local_experts": mixture.experts,
        "num_experts_per_tok": mixture.active,
        "moe_layers": [layer for layer, sparse in enumerate(sparse_layers(config)) if sparse],
        "hidden_act": ACTIVATIONS.get(mixture.expert.activation),
    }


def block_layout(ours: str, theirs: str, block: BlockConfig) -> Layout:
    assert isinstance(block.mixer, AttentionConfig) and block.feed_forward is not None
    layout = norm_layout(ours, theirs, mixer_norm="input_layernorm", feed_forward_norm="post_attention_layernorm")
    layout |= attention_layout(f"{ours}mixer.", f"{theirs}self_attn.", block.mixer)
    ours, theirs = f"{ours}feed_forward.", f"{theirs}feed_forward."
    if isinstance(block.feed_forward, FeedForwardConfig):
        return layout | feed_forward_layout(ours, theirs, block.feed_forward)
    layout[f"{theirs}router.weight"] = maps_to(f"{ours}router.weight")
    layout[f"{theirs}experts.gate_up_proj"] = maps_to(f"{ours}experts.gate_up", in_then_out)
    layout[f"{theirs}experts.down_proj"] = maps_to(f"{ours}experts.down", in_then_out)
    assert block.feed_forward.shared is not None
    return layout | feed_forward_layout(f"{ours}shared.", f"{theirs}shared_expert.", block.feed_forward.shared)


def in_then_out(tensor: Tensor) -> Tensor:
    """The matrices of all experts, transposed."""
    return tensor.transpose(1, 2)


def llama4_layout(config: ModelConfig) -> Layout:
    return stack_layout(config, block_layout)


LLAMA4 = Family(("llama4_text",), "Llama4ForCausalLM", read_llama4, write_llama4, llama4_layout)
