"""Gemma 2 and Gemma 3 (text): norms before and after the parts, gains stored as 1 + w, embeddings times sqrt(width).

Gemma 2 caps attention scores and logits by a tanh and has a window in every other layer. Gemma 3 norms queries and keys
instead, has windows in five of six layers, and rotates those with a base of their own.
"""

from __future__ import annotations

from collections.abc import Mapping

from ingot.checkpoints.families import common
from ingot.checkpoints.families.family import Family
from ingot.checkpoints.families.keys import FULL, SLIDING, Keys, Values
from ingot.checkpoints.families.layouts import Names, stacked
from ingot.checkpoints.families.rotary import read_rope, write_ropes_by_type
from ingot.model.config import ModelConfig
from ingot.model.mixers.attention import AttentionConfig
from ingot.model.positions.config import RopeConfig

CONTEXT_2, CONTEXT_3 = 8192, 131_072
NAMES = Names(
    norms={
        "mixer_norm": "input_layernorm",
        "mixer_post_norm": "post_attention_layernorm",  # another norm than in Llama
        "feed_forward_norm": "pre_feedforward_layernorm",
        "feed_forward_post_norm": "post_feedforward_layernorm",
    }
)


def read_gemma2(keys: Keys) -> ModelConfig:
    types = common.read_layer_types(keys, lambda layer: SLIDING if (layer + 1) % 2 else FULL)
    rope = read_rope(keys, context=CONTEXT_2)
    attention = {"softcap": keys.raw("attn_logit_softcapping", 50.0)}
    return _read(keys, types, {FULL: rope, SLIDING: rope}, attention, context=CONTEXT_2, softcap=30.0)


def write_gemma2(config: ModelConfig) -> Values:
    return _write(config) | {"attn_logit_softcapping": common.need(config, AttentionConfig).softcap}


def read_gemma3(keys: Keys) -> ModelConfig:
    keys.expect(attn_logit_softcapping=None)  # transformers reads it and computes without it
    period = keys.get("sliding_window_pattern", keys.get("_sliding_window_pattern", 6))
    types = common.read_layer_types(keys, lambda layer: SLIDING if (layer + 1) % period else FULL)
    local = keys.get("rope_local_base_freq", 10_000.0)
    full = read_rope(keys, base=1_000_000.0, context=CONTEXT_3, layer_type=FULL)
    sliding = read_rope(keys.having(rope_theta=None), base=local, context=CONTEXT_3, layer_type=SLIDING)
    attention = {"query_key_norm": "head"}
    return _read(keys, types, {FULL: full, SLIDING: sliding}, attention, context=CONTEXT_3, softcap=None)


def write_gemma3(config: ModelConfig) -> Values:
    sliding = common.rope_of(config, windowed=True)
    ropes = write_ropes_by_type(common.rope_of(config, windowed=False), sliding)
    return _write(config) | ropes | ({"rope_local_base_freq": sliding.base} if sliding else {})


def _read(
    keys: Keys,
    types: list[str],
    ropes: Mapping[str, RopeConfig],
    attention: Values,
    *,
    context: int,
    softcap: float | None,
) -> ModelConfig:
    keys.ignore("hidden_act")  # an older name that hidden_activation overrules
    keys.expect(use_bidirectional_attention=False)
    window = keys.raw("sliding_window", 4096)
    attention |= common.read_attention(keys, heads=8, key_value_heads=4, head_width=256, biases=False)
    common.expect_divisible(keys, attention)
    scalar = keys.get("query_pre_attn_scalar", 256)
    attention["scale"] = None if scalar == attention["head_width"] else scalar**-0.5
    activation = common.read_activation(keys, "hidden_activation", "gelu_pytorch_tanh")
    blocks = [
        {
            "mixer": {**attention, "rope": ropes[kind], "window": window if kind == SLIDING else None},
            "feed_forward": {"width": keys.get("intermediate_size", 9216), "activation": activation},
            "residual": "sandwich",
        }
        for kind in types
    ]
    return common.make_model(
        keys,
        blocks,
        epsilon=1e-6,
        context=context,
        tied=True,
        norm={"zero_centred": True, "cast": "after_gain"},
        embedding_scale=keys.need("hidden_size") ** 0.5,
        embedding_scale_rounded=True,
        logit_softcap=keys.raw("final_logit_softcapping", softcap),
    )


def _write(config: ModelConfig) -> Values:
    attention = common.need(config, AttentionConfig)
    return {
        **common.softmax_config(config),
        **common.write_layer_types(config),
        **common.write_bias(config),
        **common.write_feed_forward(config, "hidden_activation"),
        "query_pre_attn_scalar": attention.head_width if attention.scale is None else round(attention.scale**-2),
        "final_logit_softcapping": config.logit_softcap,
    }


GEMMA2 = Family(("gemma2",), "Gemma2ForCausalLM", read_gemma2, write_gemma2, stacked(NAMES.layer))
GEMMA3 = Family(("gemma3_text",), "Gemma3ForCausalLM", read_gemma3, write_gemma3, stacked(NAMES.layer))
