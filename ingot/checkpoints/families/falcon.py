"""Falcon-H1: softmax attention in parallel with Mamba-2 in every layer, with tuned multipliers (muP) all over the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ingot.checkpoints.families.common import (
    ACTIVATIONS,
    attention_layout,
    blocks_of,
    common_config,
    embedding_layout,
    feed_forward_layout,
    make_model,
    need,
    norm_layout,
    read_activation,
    read_attention,
    write_attention,
)
from ingot.checkpoints.families.family import Family, Layout
from ingot.checkpoints.families.keys import Keys
from ingot.checkpoints.families.recurrent import mamba_layout
from ingot.checkpoints.families.rotary import read_rope, write_rope_keys
from ingot.model.config import BlockConfig, ModelConfig
from ingot.model.feed_forward.dense import FeedForwardConfig
from ingot.model.mixers.parallel import ParallelConfig


def read_falcon(keys: Keys) -> ModelConfig:
    keys.ignore("mamba_expand", "mamba_chunk_size", "num_logits_to_keep", "mamba_use_mlp", "attn_layer_indices")
    keys.ignore("layers_block_type", "layer_types", "mlp_expansion_factor")
    bias = keys.get("attention_bias", False)
    attention = read_attention(
        keys,
        heads=32,
        key_value_heads=8,
        query_key_value_bias=bias,
        output_bias=bias,
        key_multiplier=keys.get("key_multiplier", 1.0),
        rope=read_rope(keys, context=8192),
    )
    parallel = {
        "kind": "parallel",
        "attention": attention,
        "mamba": _read_mamba(keys),
        "attention_in": keys.get("attention_in_multiplier", 1.0),
        "attention_out": keys.get("attention_out_multiplier", 1.0),
        "mamba_out": keys.get("ssm_out_multiplier", 1.0),
    }
    gate, down = keys.get("mlp_multipliers", [1.0, 1.0])
    feed_forward = {
        "width": keys.get("intermediate_size", 14336),
        "activation": read_activation(keys),
        "bias": keys.get("mlp_bias", False),
        "gate_multiplier": gate,
        "output_multiplier": down,
    }
    return make_model(
        keys,
        [{"mixer": parallel, "feed_forward": feed_forward}] * keys.need("num_hidden_layers"),
        epsilon=1e-5,
        context=8192,
        embedding_scale=keys.get("embedding_multiplier", 1.0),
        logit_scale=keys.get("lm_head_multiplier", 1.0),
    )


def _read_mamba(keys: Keys) -> dict[str, Any]:
    heads = keys.get("mamba_n_heads", 128)
    inner = keys.get("mamba_d_ssm", 1024)
    head = keys.get("mamba_d_head", "auto")
    low, high = (_number(limit) for limit in keys.get("time_step_limit", (0.0, float("inf"))))
    bias = keys.get("mamba_proj_bias", False)
    keys.expect(projectors_bias=bias)
    norm = "gate_last" if keys.get("mamba_norm_before_gate", True) else "gate_first"
    return {
        "kind": "mamba2",
        "heads": heads,
        "head_width": inner // heads if head == "auto" else head,
        "state": keys.get("mamba_d_state", 256),
        "groups": keys.get("mamba_n_groups", 1),
        "convolution": keys.get("mamba_d_conv", 4),
        "convolution_bias": keys.get("mamba_conv_bias", True),
        "projection_bias": bias,
        "time_step_min": low,
        "time_step_max": None if high == float("inf") else high,
        "norm": norm if keys.get("mamba_rms_norm", False) else "none",
        "input_multiplier": keys.get("ssm_in_multiplier", 1.0),
        "section_multipliers": keys.get("ssm_multipliers", [1.0] * 5),
    }


def _number(value: Any) -> float:
    """Infinities are written as an object."""
    return float(value["__float__"]) if isinstance(value, dict) else float(value)


def write_falcon(config: ModelConfig) -> Mapping[str, Any]:
    parallel, feed_forward = need(config, ParallelConfig), need(config, FeedForwardConfig)
    attention, mamba = parallel.attention, parallel.mamba
    high = mamba.time_step_max if mamba.time_step_max is not None else {"__float__": "Infinity"}
    return {
        **common_config(config),
        **write_attention(attention),
        **write_rope_keys(attention.rope),
        "attention_bias": attention.query_key_value_bias,
        "key_multiplier": attention.key_multiplier,
        "attention_in_multiplier": parallel.attention_in,
        "attention_out_multiplier": parallel.attention_out,
        "ssm_out_multiplier": parallel.mamba_out,
        "ssm_in_multiplier": mamba.input_multiplier,
        "ssm_multipliers": list(mamba.section_multipliers),
        "mamba_d_ssm": mamba.heads * mamba.head_width,
        "mamba_n_heads": mamba.heads,
        "mamba_d_head": mamba.head_width,
        "mamba_d_state": mamba.state,
        "mamba_n_groups": mamba.groups,
        "mamba_d_conv": mamba.convolution,
        "mamba_conv_bias": mamba.convolution_bias,
        "mamba_proj_bias": mamba.projection_bias,
        "projectors_bias": mamba.projection_bias,
        "mamba_rms_norm": mamba.norm != "none",
        "mamba_norm_before_gate": mamba.norm != "gate_first",
        "time_step_limit": [mamba.time_step_min, high],
        "intermediate_size": feed_forward.width,
        "hidden_act": ACTIVATIONS.get(feed_forward.activation),
        "mlp_bias": feed_forward.bias,
        "mlp_multipliers": [feed_forward.gate_multiplier, feed_forward.output_multiplier],
        "embedding_multiplier": config.embedding_scale,
        "lm_head_multiplier": config.logit_scale,
    }


def block_layout(ours: str, theirs: str, block: BlockConfig) -> Layout:
    assert isinstance(block.mixer, ParallelConfig) and isinstance(block.feed_forward, FeedForwardConfig)
    layout = norm_layout(ours, theirs, mixer_norm="input_layernorm", feed_forward_norm="pre_ff_layernorm")
    layout |= attention_layout(f"{ours}mixer.attention.", f"{theirs}self_attn.", block.mixer.attention)
    layout |= mamba_layout(f"{ours}mixer.mamba.", f"{theirs}mamba.", block.mixer.mamba)
    return layout | feed_forward_layout(f"{ours}feed_forward.", f"{theirs}feed_forward.", block.feed_forward)


def falcon_layout(config: ModelConfig) -> Layout:
    layout = embedding_layout(config, norm="final_layernorm")
    for layer, block in enumerate(blocks_of(config)):
        layout |= block_layout(f"blocks.{layer}.", f"model.layers.{layer}.", block)
    return layout


FALCON_H1 = Family(("falcon_h1",), "FalconH1ForCausalLM", read_falcon, write_falcon, falcon_layout)
