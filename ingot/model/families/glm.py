"""GLM-4.5, 4.6 and models built on them (INTELLECT-3): half of each head turns, dense layers first, then mixtures.

The router is that of DeepSeek-V3; a multi-token prediction module may follow the last layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ingot.model.config import BlockConfig, ModelConfig
from ingot.model.families.common import (
    attention_layout,
    common_config,
    feed_forward_layout,
    make_model,
    need,
    norm_layout,
    read_activation,
    read_attention,
    rope_of,
    stack_layout,
    write_attention,
)
from ingot.model.families.family import Family, Layout
from ingot.model.families.keys import Keys
from ingot.model.families.mixture import V3_EPSILON, mixture_layout, sparse_layers, write_mixture
from ingot.model.families.multi_token import multi_token_layout, read_multi_token, write_multi_token
from ingot.model.families.rotary import read_rope, write_rope_keys
from ingot.model.feed_forward.config import MoeConfig
from ingot.model.mixers.config import AttentionConfig

CONTEXT = 131_072


def read_glm4_moe(keys: Keys) -> ModelConfig:
    attention = read_attention(
        keys,
        heads=96,
        key_value_heads=8,
        query_key_norm="head" if keys.get("use_qk_norm", False) else "none",
        query_key_value_bias=keys.get("attention_bias", False),
        rope=read_rope(keys, share=0.5, context=CONTEXT),
    )
    width, activation = keys.get("moe_intermediate_size", 1408), read_activation(keys)
    renormalise = keys.get("norm_topk_prob", True)
    mixture = {
        "kind": "moe",
        "experts": keys.get("n_routed_experts", keys.get("num_local_experts", 128)),
        "active": keys.get("num_experts_per_tok", 8),
        "expert": {"width": width, "activation": activation},
        "shared": {"width": width * keys.get("n_shared_experts", 1), "activation": activation},
        "router": {
            "score": "sigmoid",
            "selection_bias": True,
            "groups": keys.get("n_group", 1),
            "kept_groups": keys.get("topk_group", 1),
            "renormalise": renormalise,
            "renormalise_epsilon": V3_EPSILON if renormalise else 0.0,
            "scaling": keys.get("routed_scaling_factor", 1.0),
            "float32": True,
        },
    }
    dense = {"width": keys.get("intermediate_size", 10944), "activation": activation}
    first = keys.get("first_k_dense_replace", 1)
    blocks = [
        {"mixer": attention, "feed_forward": dense if layer < first else mixture}
        for layer in range(keys.need("num_hidden_layers"))
    ]
    return read_multi_token(keys, make_model(keys, blocks, epsilon=1e-5, context=CONTEXT))


def write_glm4_moe(config: ModelConfig) -> Mapping[str, Any]:
    attention, mixture = need(config, AttentionConfig), need(config, MoeConfig)
    return {
        **common_config(config),
        **write_attention(attention),
        **write_rope_keys(rope_of(config), partial=True),
        **write_mixture(config),
        **write_multi_token(config),
        "attention_bias": attention.query_key_value_bias,
        "use_qk_norm": attention.query_key_norm != "none",
        "n_routed_experts": mixture.experts,
        "n_shared_experts": mixture.shared.width // mixture.expert.width if mixture.shared else 0,
        "n_group": mixture.router.groups,
        "topk_group": mixture.router.kept_groups,
        "norm_topk_prob": mixture.router.renormalise,
        "routed_scaling_factor": mixture.router.scaling,
        "first_k_dense_replace": sparse_layers(config).index(True),
    }


def block_layout(ours: str, theirs: str, block: BlockConfig) -> Layout:
    """The names of Llama, with a mixture in the place of some feed-forwards."""
    assert isinstance(block.mixer, AttentionConfig) and block.feed_forward is not None
    layout = norm_layout(ours, theirs, mixer_norm="input_layernorm", feed_forward_norm="post_attention_layernorm")
    layout |= attention_layout(f"{ours}mixer.", f"{theirs}self_attn.", block.mixer)
    ours, theirs = f"{ours}feed_forward.", f"{theirs}mlp."
    if isinstance(block.feed_forward, MoeConfig):
        return layout | mixture_layout(ours, theirs, block.feed_forward)
    return layout | feed_forward_layout(ours, theirs, block.feed_forward)


def glm_layout(config: ModelConfig) -> Layout:
    return stack_layout(config, block_layout) | multi_token_layout(config, block_layout)


GLM4_MOE = Family(("glm4_moe",), "Glm4MoeForCausalLM", read_glm4_moe, write_glm4_moe, glm_layout)
