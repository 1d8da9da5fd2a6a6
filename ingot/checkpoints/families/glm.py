"""GLM-4.5, 4.6 and models built on them (INTELLECT-3): half of each head is rotated, dense layers first, then mixtures.

The router is that of DeepSeek-V3; a multi-token prediction module may follow the last layer.
"""

from __future__ import annotations

from ingot.checkpoints.families import common
from ingot.checkpoints.families.family import Family
from ingot.checkpoints.families.keys import Keys, Values
from ingot.checkpoints.families.layouts import stacked
from ingot.checkpoints.families.mixture import read_v3_mixture, sparse_layers, write_mixture, write_v3_mixture
from ingot.checkpoints.families.multi_token import read_multi_token, write_multi_token
from ingot.checkpoints.families.rotary import read_rope
from ingot.model.config import ModelConfig
from ingot.model.feed_forward.mixture import MoeConfig
from ingot.model.mixers.attention import AttentionConfig

CONTEXT = 131_072


def read_glm4_moe(keys: Keys) -> ModelConfig:
    attention = common.read_attention(
        keys,
        heads=96,
        key_value_heads=8,
        query_key_norm="head" if keys.get("use_qk_norm", False) else "none",
        query_key_value_bias=keys.get("attention_bias", False),
        rope=read_rope(keys, share=0.5, context=CONTEXT),
    )
    mixture = read_v3_mixture(keys, experts=128, width=1408, scaling=1.0)
    dense, first = common.read_feed_forward(keys, 10944), keys.get("first_k_dense_replace", 1)
    layers = range(keys.need("num_hidden_layers"))
    blocks = [{"mixer": attention, "feed_forward": dense if layer < first else mixture} for layer in layers]
    return read_multi_token(keys, common.make_model(keys, blocks, epsilon=1e-5, context=CONTEXT))


def write_glm4_moe(config: ModelConfig) -> Values:
    return {
        **common.softmax_config(config, partial=True),
        **write_mixture(config),
        **write_v3_mixture(common.need(config, MoeConfig)),
        **write_multi_token(config),
        **common.write_bias(config),
        "use_qk_norm": common.need(config, AttentionConfig).query_key_norm != "none",
        "first_k_dense_replace": sparse_layers(config).index(True),
    }


GLM4_MOE = Family(("glm4_moe",), "Glm4MoeForCausalLM", read_glm4_moe, write_glm4_moe, stacked())
