"""Falcon-H1: softmax attention in parallel with Mamba-2 in every layer, with tuned multipliers (muP) all over the model."""

from __future__ import annotations

from typing import Any

from ingot.checkpoints.families import common
from ingot.checkpoints.families.family import Family
from ingot.checkpoints.families.keys import Keys, Table, Values, written
from ingot.checkpoints.families.layouts import Names, stacked
from ingot.checkpoints.families.rotary import read_rope, write_rope_keys
from ingot.model.config import ModelConfig
from ingot.model.feed_forward.dense import FeedForwardConfig
from ingot.model.mixers.parallel import ParallelConfig

CONTEXT = 8192
NAMES = Names(
    norms={"mixer_norm": "input_layernorm", "feed_forward_norm": "pre_ff_layernorm"},
    recurrent="mamba",
    feed_forward="feed_forward",
)
PARALLEL: Table = {
    "attention_in_multiplier": ("attention_in", 1.0),
    "attention_out_multiplier": ("attention_out", 1.0),
    "ssm_out_multiplier": ("mamba_out", 1.0),
}
MAMBA: Table = {
    "mamba_n_heads": ("heads", 128),
    "mamba_d_state": ("state", 256),
    "mamba_n_groups": ("groups", 1),
    "mamba_d_conv": ("convolution", 4),
    "mamba_conv_bias": ("convolution_bias", True),
    "mamba_proj_bias": ("projection_bias", False),
    "ssm_in_multiplier": ("input_multiplier", 1.0),
}
MODEL: Table = {"embedding_multiplier": ("embedding_scale", 1.0), "lm_head_multiplier": ("logit_scale", 1.0)}


def read_falcon(keys: Keys) -> ModelConfig:
    keys.ignore("mamba_expand", "mamba_chunk_size", "num_logits_to_keep", "mamba_use_mlp", "attn_layer_indices")
    keys.ignore("layers_block_type", "layer_types", "mlp_expansion_factor")
    factor, rope = keys.get("key_multiplier", 1.0), read_rope(keys, context=CONTEXT)
    attention = common.read_attention(keys, key_value_heads=8, biases=False, key_multiplier=factor, rope=rope)
    parallel = {"kind": "parallel", "attention": attention, "mamba": _read_mamba(keys), **keys.fields(PARALLEL)}
    gate, down = keys.get("mlp_multipliers", [1.0, 1.0])
    feed_forward = common.read_feed_forward(
        keys, 14336, bias=keys.get("mlp_bias", False), gate_multiplier=gate, output_multiplier=down
    )
    blocks = [{"mixer": parallel, "feed_forward": feed_forward}] * keys.need("num_hidden_layers")
    return common.make_model(keys, blocks, epsilon=1e-5, context=CONTEXT, **keys.fields(MODEL))


def _read_mamba(keys: Keys) -> Values:
    mamba, inner, head = keys.fields(MAMBA), keys.get("mamba_d_ssm", 1024), keys.get("mamba_d_head", "auto")
    keys.expect(projectors_bias=mamba["projection_bias"])
    low, high = (_number(limit) for limit in keys.get("time_step_limit", (0.0, float("inf"))))
    norm = "gate_last" if keys.get("mamba_norm_before_gate", True) else "gate_first"
    return {
        "kind": "mamba2",
        **mamba,
        "head_width": inner // mamba["heads"] if head == "auto" else head,
        "time_step_min": low,
        "time_step_max": None if high == float("inf") else high,
        "norm": norm if keys.get("mamba_rms_norm", False) else "none",
        "section_multipliers": keys.get("ssm_multipliers", [1.0] * 5),
    }


def _number(value: Any) -> float:
    """Infinities are written as an object."""
    return float(value["__float__"]) if isinstance(value, dict) else float(value)


def write_falcon(config: ModelConfig) -> Values:
    parallel, feed_forward = common.need(config, ParallelConfig), common.need(config, FeedForwardConfig)
    attention, mamba = parallel.attention, parallel.mamba
    high = mamba.time_step_max if mamba.time_step_max is not None else {"__float__": "Infinity"}
    return {
        **common.common_config(config),
        **common.write_attention(attention),
        **write_rope_keys(attention.rope),
        "attention_bias": attention.query_key_value_bias,
        "key_multiplier": attention.key_multiplier,
        **written(parallel, PARALLEL),
        **written(mamba, MAMBA),
        "ssm_multipliers": list(mamba.section_multipliers),
        "mamba_d_ssm": mamba.heads * mamba.head_width,
        "mamba_d_head": mamba.head_width,
        "projectors_bias": mamba.projection_bias,
        "mamba_rms_norm": mamba.norm != "none",
        "mamba_norm_before_gate": mamba.norm != "gate_first",
        "time_step_limit": [mamba.time_step_min, high],
        **common.write_feed_forward(config),
        "mlp_bias": feed_forward.bias,
        "mlp_multipliers": [feed_forward.gate_multiplier, feed_forward.output_multiplier],
        **written(config, MODEL),
    }


LAYOUT = stacked(NAMES.layer, norm="final_layernorm")
FALCON_H1 = Family(("falcon_h1",), "FalconH1ForCausalLM", read_falcon, write_falcon, LAYOUT)
