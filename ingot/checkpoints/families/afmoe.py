"""AFMoE (Trinity): norms before and after the parts, gated attention, windows with and full attention without positions.

A few dense layers come first, then mixtures that route like DeepSeek-V3.
"""

from __future__ import annotations

from ingot.checkpoints.families import common
from ingot.checkpoints.families.family import Family
from ingot.checkpoints.families.keys import FULL, SLIDING, Keys, Values
from ingot.checkpoints.families.layouts import Names, stacked
from ingot.checkpoints.families.mixture import (
    V3_EPSILON,
    read_mixture,
    shared_experts,
    sparse_layers,
    with_shared,
    write_mixture,
)
from ingot.checkpoints.families.rotary import read_rope
from ingot.model.config import ModelConfig
from ingot.model.feed_forward.mixture import MoeConfig

CONTEXT = 16384
NAMES = Names(
    norms={
        "mixer_norm": "input_layernorm",
        "mixer_post_norm": "post_attention_layernorm",  # another norm than in Llama
        "feed_forward_norm": "pre_mlp_layernorm",
        "feed_forward_post_norm": "post_mlp_layernorm",
    },
    router="router.gate",
    selection="expert_bias",
)


def read_afmoe(keys: Keys) -> ModelConfig:
    keys.expect(score_func="sigmoid", route_norm=True)
    keys.expect(n_group=1, topk_group=1, num_expert_groups=1, num_limited_groups=1)
    keys.ignore("load_balance_coeff", "use_grouped_mm")
    period = keys.get("global_attn_every_n_layers", 4)
    types = common.read_layer_types(keys, lambda layer: SLIDING if (layer + 1) % period else FULL)
    rope, window = read_rope(keys, context=CONTEXT), keys.get("sliding_window", 1024)
    attention = common.read_attention(keys, heads=16, head_width=128, query_key_norm="head", biases=False, gate={})
    mixers = {FULL: {**attention, "rope": None}, SLIDING: {**attention, "rope": rope, "window": window}}
    router = {
        "score": "sigmoid",
        "selection_bias": True,
        "renormalise": True,
        "renormalise_epsilon": V3_EPSILON,
        "scaling": keys.get("route_scale", 1.0),
    }
    mixture = read_mixture(keys, experts=64, active=6, width=1408, router=router)
    mixture = with_shared(mixture, mixture["expert"]["width"] * keys.get("num_shared_experts", 2))
    dense, first = common.read_feed_forward(keys, 6144), keys.get("num_dense_layers", 1)
    blocks = [
        {"mixer": mixers[kind], "feed_forward": dense if layer < first else mixture, "residual": "sandwich"}
        for layer, kind in enumerate(types)
    ]
    scale = keys.need("hidden_size") ** 0.5 if keys.get("mup_enabled", False) else 1.0
    return common.make_model(
        keys, blocks, epsilon=1e-5, context=CONTEXT, norm={"cast": "after_gain"}, embedding_scale=scale
    )


def write_afmoe(config: ModelConfig) -> Values:
    mixture = common.need(config, MoeConfig)
    return {
        **common.softmax_config(config),
        **common.write_layer_types(config),
        **write_mixture(config),
        **common.write_bias(config),
        "num_experts": mixture.experts,
        "num_shared_experts": shared_experts(mixture),
        "route_scale": mixture.router.scaling,
        "num_dense_layers": sparse_layers(config).index(True),
        "mup_enabled": config.embedding_scale != 1.0,
    }


AFMOE = Family(("afmoe",), "AfmoeForCausalLM", read_afmoe, write_afmoe, stacked(NAMES.layer))
