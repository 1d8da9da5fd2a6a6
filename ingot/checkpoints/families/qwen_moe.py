"""Qwen 1.5/2 MoE and Qwen 3 MoE: Qwen's attention, with mixtures of experts that route by softmax.

Qwen 2 MoE has a shared expert behind a gate; Qwen 3 MoE has none, and norms queries and keys. `mlp_only_layers` and
`decoder_sparse_step` leave some layers dense.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from ingot.checkpoints.families.common import (
    SLIDING,
    common_config,
    make_model,
    need,
    read_activation,
    read_attention,
    rope_of,
    stack_layout,
    write_attention,
    write_layer_types,
)
from ingot.checkpoints.families.family import Family, Layout
from ingot.checkpoints.families.keys import Keys
from ingot.checkpoints.families.llama import read_windows
from ingot.checkpoints.families.mixture import block_layout, sparse_layers, write_mixture
from ingot.checkpoints.families.rotary import read_rope, write_rope_keys
from ingot.model.config import ModelConfig
from ingot.model.feed_forward.mixture import MoeConfig
from ingot.model.mixers.attention import AttentionConfig

CONTEXT = 32768


def read_qwen2_moe(keys: Keys) -> ModelConfig:
    attention = read_attention(
        keys,
        heads=16,
        key_value_heads=16,
        query_key_value_bias=keys.get("qkv_bias", True),
        rope=read_rope(keys, context=CONTEXT),
    )
    last = keys.get("max_window_layers", 28)
    windows = read_windows(keys, lambda layer: layer % 2 == 0 and layer < last)
    shared = {"width": keys.get("shared_expert_intermediate_size", 5632), "activation": read_activation(keys)}
    mixture = {
        **_read_mixture(keys, experts=60, active=4, width=1408),
        "shared": shared,
        "shared_gate": True,
    }
    return _read(keys, attention, windows, mixture, dense=5632)


def write_qwen2_moe(config: ModelConfig) -> Mapping[str, Any]:
    attention, mixture = need(config, AttentionConfig), need(config, MoeConfig)
    written = write_layer_types(config)
    return {
        **_write(config),
        **written,
        "use_sliding_window": SLIDING in written["layer_types"],
        "max_window_layers": config.depth,
        "qkv_bias": attention.query_key_value_bias,
        "num_experts": mixture.experts,
        "shared_expert_intermediate_size": mixture.shared.width if mixture.shared else 0,
    }


def read_qwen3_moe(keys: Keys) -> ModelConfig:
    keys.ignore("max_window_layers")
    bias = keys.get("attention_bias", False)
    attention = read_attention(
        keys,
        key_value_heads=4,
        query_key_norm="head",
        query_key_value_bias=bias,
        output_bias=bias,
        rope=read_rope(keys, context=CONTEXT),
    )
    windows = read_windows(keys, lambda layer: True)  # in all layers or in none
    return _read(keys, attention, windows, _read_mixture(keys, experts=128, active=8, width=768), dense=6144)


def write_qwen3_moe(config: ModelConfig) -> Mapping[str, Any]:
    attention = need(config, AttentionConfig)
    return {
        **_write(config),
        "use_sliding_window": attention.window is not None,
        "sliding_window": attention.window,
        "attention_bias": attention.query_key_value_bias,
        "num_experts": need(config, MoeConfig).experts,
    }


def _read_mixture(keys: Keys, *, experts: int, active: int, width: int) -> dict[str, Any]:
    return {
        "kind": "moe",
        "experts": keys.get("num_experts", keys.get("num_local_experts", experts)),
        "active": keys.get("num_experts_per_tok", active),
        "expert": {"width": keys.get("moe_intermediate_size", width), "activation": read_activation(keys)},
        "router": {"renormalise": keys.get("norm_topk_prob", False)},
    }


def _read(
    keys: Keys, attention: dict[str, Any], windows: list[int | None], mixture: dict[str, Any], *, dense: int
) -> ModelConfig:
    feed_forward = {"width": keys.get("intermediate_size", dense), "activation": read_activation(keys)}
    step: int = keys.get("decoder_sparse_step", 1)
    exceptions: list[int] = keys.get("mlp_only_layers", [])
    blocks = [
        {
            "mixer": {**attention, "window": window},
            "feed_forward": feed_forward if (layer + 1) % step or layer in exceptions else mixture,
        }
        for layer, window in enumerate(windows)
    ]
    return make_model(keys, blocks, epsilon=1e-6, context=CONTEXT)


def _write(config: ModelConfig) -> dict[str, Any]:
    return {
        **common_config(config),
        **write_attention(need(config, AttentionConfig)),
        **write_rope_keys(rope_of(config)),
        **write_mixture(config),
        "norm_topk_prob": need(config, MoeConfig).router.renormalise,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [layer for layer, sparse in enumerate(sparse_layers(config)) if not sparse],
    }


def qwen_layout(config: ModelConfig) -> Layout:
    return stack_layout(config, partial(block_layout, shared="shared_expert"))


QWEN2_MOE = Family(("qwen2_moe",), "Qwen2MoeForCausalLM", read_qwen2_moe, write_qwen2_moe, qwen_layout)
QWEN3_MOE = Family(("qwen3_moe",), "Qwen3MoeForCausalLM", read_qwen3_moe, write_qwen3_moe, qwen_layout)
