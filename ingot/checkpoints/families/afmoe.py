"""AFMoE (Trinity): norms before and after the parts, gated attention, windows with and full attention without positions.

A few dense layers come first, then mixtures that route like DeepSeek-V3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ingot.checkpoints.families.common import (
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
from ingot.checkpoints.families.family import Family, Layout, maps_to
from ingot.checkpoints.families.keys import Keys
from ingot.checkpoints.families.mixture import V3_EPSILON, mixture_layout, sparse_layers, write_mixture
from ingot.checkpoints.families.rotary import read_rope, write_rope_keys
from ingot.model.config import BlockConfig, ModelConfig
from ingot.model.feed_forward.mixture import MoeConfig
from ingot.model.mixers.attention import AttentionConfig

CONTEXT = 16384


def read_afmoe(keys: Keys) -> ModelConfig:
    keys.expect(
        score_func="sigmoid", route_norm=True, n_group=1, topk_group=1, num_expert_groups=1, num_limited_groups=1
    )
    keys.ignore("load_balance_coeff", "use_grouped_mm")
    depth, bias = keys.need("num_hidden_layers"), keys.get("attention_bias", False)
    period = keys.get("global_attn_every_n_layers", 4)
    types = read_layer_types(keys, depth, lambda layer: SLIDING if (layer + 1) % period else FULL)
    rope, window = read_rope(keys, context=CONTEXT), keys.get("sliding_window", 1024)
    attention = read_attention(
        keys, heads=16, head_width=128, query_key_norm="head", query_key_value_bias=bias, output_bias=bias, gate={}
    )
    width, activation = keys.get("moe_intermediate_size", 1408), read_activation(keys)
    mixture = {
        "kind": "moe",
        "experts": keys.get("num_experts", 64),
        "active": keys.get("num_experts_per_tok", 6),
        "expert": {"width": width, "activation": activation},
        "shared": {"width": width * keys.get("num_shared_experts", 2), "activation": activation},
        "router": {
            "score": "sigmoid",
            "selection_bias": True,
            "renormalise": True,
            "renormalise_epsilon": V3_EPSILON,
            "scaling": keys.get("route_scale", 1.0),
        },
    }
    dense = {"width": keys.get("intermediate_size", 6144), "activation": activation}
    first = keys.get("num_dense_layers", 1)
    local: dict[str, dict[str, Any]] = {FULL: {"rope": None, "window": None}, SLIDING: {"rope": rope, "window": window}}
    blocks = [
        {
            "mixer": {**attention, **local[kind]},
            "feed_forward": dense if layer < first else mixture,
            "residual": "sandwich",
        }
        for layer, kind in enumerate(types)
    ]
    scale = keys.need("hidden_size") ** 0.5 if keys.get("mup_enabled", False) else 1.0
    return make_model(keys, blocks, epsilon=1e-5, context=CONTEXT, norm={"cast": "after_gain"}, embedding_scale=scale)


def write_afmoe(config: ModelConfig) -> Mapping[str, Any]:
    attention, mixture = need(config, AttentionConfig), need(config, MoeConfig)
    return {
        **common_config(config),
        **write_attention(attention),
        **write_layer_types(config),
        **write_rope_keys(rope_of(config)),
        **write_mixture(config),
        "attention_bias": attention.query_key_value_bias,
        "num_experts": mixture.experts,
        "num_shared_experts": mixture.shared.width // mixture.expert.width if mixture.shared else 0,
        "route_scale": mixture.router.scaling,
        "num_dense_layers": sparse_layers(config).index(True),
        "mup_enabled": config.embedding_scale != 1.0,
    }


def block_layout(ours: str, theirs: str, block: BlockConfig) -> Layout:
    """Norms before and after both parts; `post_attention_layernorm` is another norm than in Llama."""
    assert isinstance(block.mixer, AttentionConfig) and block.feed_forward is not None
    layout = norm_layout(
        ours,
        theirs,
        mixer_norm="input_layernorm",
        mixer_post_norm="post_attention_layernorm",
        feed_forward_norm="pre_mlp_layernorm",
        feed_forward_post_norm="post_mlp_layernorm",
    )
    layout |= attention_layout(f"{ours}mixer.", f"{theirs}self_attn.", block.mixer)
    layout[f"{theirs}self_attn.gate_proj.weight"] = maps_to(f"{ours}mixer.gate.weight")
    ours, theirs = f"{ours}feed_forward.", f"{theirs}mlp."
    if isinstance(block.feed_forward, MoeConfig):
        return layout | mixture_layout(ours, theirs, block.feed_forward, router="router.gate", selection="expert_bias")
    return layout | feed_forward_layout(ours, theirs, block.feed_forward)


def afmoe_layout(config: ModelConfig) -> Layout:
    return stack_layout(config, block_layout)


AFMOE = Family(("afmoe",), "AfmoeForCausalLM", read_afmoe, write_afmoe, afmoe_layout)
