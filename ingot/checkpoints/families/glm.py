"""GLM-4.5, 4.6 and models built on them (INTELLECT-3): half of each head is rotated, dense layers first, then mixtures.

The router is that of DeepSeek-V3; a multi-token prediction module may follow the last layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ingot.checkpoints.families.common import (
    common_config,
    make_model,
    need,
    read_activation,
    read_attention,
    rope_of,
    stack_layout,
    write_attention,
)
from ingot.checkpoints.families.family import Family, Layout
from ingot.checkpoints.families.keys import Keys
from ingot.checkpoints.families.mixture import (
    block_layout,
    read_v3_mixture,
    sparse_layers,
    write_mixture,
    write_v3_mixture,
)
from ingot.checkpoints.families.multi_token import multi_token_layout, read_multi_token, write_multi_token
from ingot.checkpoints.families.rotary import read_rope, write_rope_keys
from ingot.model.config import ModelConfig
from ingot.model.feed_forward.mixture import MoeConfig
from ingot.model.mixers.attention import AttentionConfig

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
    mixture = read_v3_mixture(keys, experts=128, width=1408, scaling=1.0)
    dense = {"width": keys.get("intermediate_size", 10944), "activation": read_activation(keys)}
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
        **write_v3_mixture(mixture),
        "first_k_dense_replace": sparse_layers(config).index(True),
    }


def glm_layout(config: ModelConfig) -> Layout:
    return stack_layout(config, block_layout) | multi_token_layout(config, block_layout)


GLM4_MOE = Family(("glm4_moe",), "Glm4MoeForCausalLM", read_glm4_moe, write_glm4_moe, glm_layout)
