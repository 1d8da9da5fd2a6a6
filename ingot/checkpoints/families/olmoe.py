"""OLMoE: a mixture in every layer, and norms over all heads of queries and keys at once."""

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
    write_attention,
)
from ingot.checkpoints.families.family import Family
from ingot.checkpoints.families.keys import Keys
from ingot.checkpoints.families.mixture import write_mixture
from ingot.checkpoints.families.qwen_moe import qwen_layout
from ingot.checkpoints.families.rotary import read_rope, write_rope_keys
from ingot.model.config import ModelConfig
from ingot.model.feed_forward.mixture import MoeConfig
from ingot.model.mixers.attention import AttentionConfig

CONTEXT = 4096


def read_olmoe(keys: Keys) -> ModelConfig:
    keys.expect(clip_qkv=None)
    bias = keys.get("attention_bias", False)
    attention = read_attention(
        keys,
        heads=16,
        query_key_norm="full",
        query_key_value_bias=bias,
        output_bias=bias,
        rope=read_rope(keys, context=CONTEXT),
    )
    if attention["heads"] * attention["head_width"] != keys.need("hidden_size"):
        keys.refuse("heads that are together not as wide as the stream")  # the norm of the queries has its width
    mixture = {
        "kind": "moe",
        "experts": keys.get("num_experts", keys.get("num_local_experts", 64)),
        "active": keys.get("num_experts_per_tok", 8),
        "expert": {"width": keys.get("intermediate_size", 2048), "activation": read_activation(keys)},
        "router": {"renormalise": keys.get("norm_topk_prob", False)},
    }
    blocks = [{"mixer": attention, "feed_forward": mixture}] * keys.need("num_hidden_layers")
    return make_model(keys, blocks, epsilon=1e-5, context=CONTEXT)


def write_olmoe(config: ModelConfig) -> Mapping[str, Any]:
    attention, mixture = need(config, AttentionConfig), need(config, MoeConfig)
    written = write_mixture(config)
    del written["moe_intermediate_size"]
    return {
        **common_config(config),
        **write_attention(attention),
        **write_rope_keys(rope_of(config)),
        **written,
        "attention_bias": attention.query_key_value_bias,
        "num_experts": mixture.experts,
        "norm_topk_prob": mixture.router.renormalise,
    }


OLMOE = Family(("olmoe",), "OlmoeForCausalLM", read_olmoe, write_olmoe, qwen_layout)
