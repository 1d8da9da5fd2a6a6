"""Nemotron-H (and Nemotron 3): one part per layer, mostly Mamba-2 and feed-forwards, with a few attentions; no positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ingot.checkpoints.families.common import (
    ACTIVATIONS,
    attention_layout,
    blocks_of,
    common_config,
    feed_forward_layout,
    first,
    make_model,
    need,
    read_activation,
    read_attention,
    write_attention,
)
from ingot.checkpoints.families.family import Family, Layout, maps_to
from ingot.checkpoints.families.keys import Keys
from ingot.checkpoints.families.mixture import mixture_layout, read_v3_router, write_v3_router
from ingot.checkpoints.families.recurrent import mamba_layout
from ingot.model.config import BlockConfig, ModelConfig
from ingot.model.feed_forward.dense import FeedForwardConfig
from ingot.model.feed_forward.mixture import MoeConfig
from ingot.model.mixers.attention import AttentionConfig
from ingot.model.mixers.mamba2 import Mamba2Config

MAMBA, ATTENTION, MIXTURE, DENSE = "linear_attention", "full_attention", "moe", "mlp"
LETTERS = {"M": MAMBA, "*": ATTENTION, "E": MIXTURE, "-": DENSE}
OLDER = {"mamba": MAMBA, "attention": ATTENTION}
SPELLINGS = {
    "mamba_n_groups": "n_groups",
    "mamba_d_conv": "conv_kernel",
    "mamba_dt_min": "time_step_min",
    "mamba_conv_bias": "use_conv_bias",
}


def read_nemotron(keys: Keys) -> ModelConfig:
    for name, usual in SPELLINGS.items():
        if keys.has(name):
            keys = keys.having(**{usual: keys.raw(name)})
    keys.expect(mamba_hidden_act="silu", residual_in_fp32=False, num_nextn_predict_layers=0, attention_bias=False)
    keys.ignore(
        *("expand", "mamba_expand", "chunk_size", "mamba_chunk_size", "use_mamba_kernels", "mamba_ssm_cache_dtype"),
        *(
            "time_step_max",
            "mamba_dt_max",
            "time_step_floor",
            "mamba_dt_init_floor",
            "time_step_limit",
            "mamba_dt_limit",
        ),
        *("rescale_prenorm_residual", "num_logits_to_keep", "moe_shared_expert_overlap", "mtp_layers_block_type"),
        *("mamba_proj_bias", "num_hidden_layers", "num_query_groups", "attention_head_dim", "sliding_window"),
        *("mtp_hybrid_override_pattern", "rope_theta", "rope_parameters", "rope_scaling", "partial_rotary_factor"),
    )
    bias = keys.get("mlp_bias", False)
    activation = read_activation(keys, "mlp_hidden_act", "relu2")
    channel = {"gated": False, "activation": activation, "bias": bias}
    parts: dict[str, dict[str, Any]] = {
        MAMBA: {"mixer": _read_mamba(keys)},
        ATTENTION: {"mixer": read_attention(keys, heads=32, key_value_heads=8, head_width=128, rope=None)},
        DENSE: {"feed_forward": {**channel, "width": keys.get("intermediate_size", 21504)}},
        MIXTURE: {
            "feed_forward": {
                "kind": "moe",
                "experts": keys.get("n_routed_experts", keys.get("num_local_experts", 8)),
                "active": keys.get("num_experts_per_tok", 2),
                "expert": {**channel, "width": keys.get("moe_intermediate_size", 7688)},
                "shared": {**channel, "width": keys.get("moe_shared_expert_intermediate_size", 7688)},
                "latent": keys.raw("moe_latent_size"),
                "router": read_v3_router(keys, scaling=1.0),
            }
        },
    }
    keys.expect(n_shared_experts=1)
    types = _layer_types(keys)
    if bias and MIXTURE in types:
        keys.refuse("mlp_bias in a model with mixtures")
    norm = {"epsilon": keys.get("layer_norm_epsilon", 1e-5), "cast": "after_gain"}
    return make_model(keys, [parts[kind] for kind in types], epsilon=1e-5, context=4096, norm=norm)


def _read_mamba(keys: Keys) -> dict[str, Any]:
    return {
        "kind": "mamba2",
        "heads": keys.get("mamba_num_heads", 128),
        "head_width": keys.get("mamba_head_dim", 64),
        "state": keys.get("ssm_state_size", 128),
        "groups": keys.get("n_groups", 8),
        "convolution": keys.get("conv_kernel", 4),
        "convolution_bias": keys.get("use_conv_bias", True),
        "projection_bias": keys.get("use_bias", False),
        "time_step_min": keys.get("time_step_min", 0.001),
        "norm": "gate_first",
    }


def _layer_types(keys: Keys) -> list[str]:
    """A list of kinds, or the letters of a released file."""
    letters, types = keys.raw("hybrid_override_pattern"), keys.raw("layers_block_type", keys.raw("layer_types"))
    types = types or (
        [LETTERS.get(letter, letter) for letter in letters] if letters else [MAMBA, MIXTURE, ATTENTION, DENSE]
    )
    types = [OLDER.get(kind, kind) for kind in types]
    if set(types) - set(LETTERS.values()):
        keys.refuse(f"layers of a kind that is not known: {', '.join(sorted(set(types) - set(LETTERS.values())))}")
    return types


def write_nemotron(config: ModelConfig) -> Mapping[str, Any]:
    mamba, attention = need(config, Mamba2Config), first(config, AttentionConfig)
    dense, mixture = first(config, FeedForwardConfig), first(config, MoeConfig)
    values = common_config(config)
    values["layer_norm_epsilon"] = values.pop("rms_norm_eps")
    channel = dense or (mixture.expert if mixture is not None else None)
    values |= {
        **(write_attention(attention) if attention is not None else {}),
        "layers_block_type": [_kind(block) for block in blocks_of(config)],
        "mamba_num_heads": mamba.heads,
        "mamba_head_dim": mamba.head_width,
        "ssm_state_size": mamba.state,
        "n_groups": mamba.groups,
        "conv_kernel": mamba.convolution,
        "use_conv_bias": mamba.convolution_bias,
        "use_bias": mamba.projection_bias,
        "mamba_proj_bias": mamba.projection_bias,
        "time_step_min": mamba.time_step_min,
        "mlp_hidden_act": ACTIVATIONS.get(channel.activation) if channel is not None else "relu2",
        "mlp_bias": channel.bias if channel is not None else False,
    }
    if dense is not None:
        values["intermediate_size"] = dense.width
    if mixture is not None:
        values |= {
            **write_v3_router(mixture),
            "num_experts_per_tok": mixture.active,
            "moe_intermediate_size": mixture.expert.width,
            "moe_shared_expert_intermediate_size": mixture.shared.width if mixture.shared else 0,
            "moe_latent_size": mixture.latent,
        }
    return values


def _kind(block: BlockConfig) -> str:
    if isinstance(block.mixer, Mamba2Config):
        return MAMBA
    if block.mixer is not None:
        return ATTENTION
    return MIXTURE if isinstance(block.feed_forward, MoeConfig) else DENSE


def block_layout(ours: str, theirs: str, block: BlockConfig) -> Layout:
    """Everything is called `mixer`, with one norm before it."""
    part = "mixer" if block.mixer is not None else "feed_forward"
    layout = {f"{theirs}norm.weight": maps_to(f"{ours}{part}_norm.gain")}
    ours, theirs = f"{ours}{part}.", f"{theirs}mixer."
    if isinstance(block.mixer, Mamba2Config):
        return layout | mamba_layout(ours, theirs, block.mixer)
    if isinstance(block.mixer, AttentionConfig):
        return layout | attention_layout(ours, theirs, block.mixer)
    if isinstance(block.feed_forward, FeedForwardConfig):
        return layout | feed_forward_layout(ours, theirs, block.feed_forward)
    assert isinstance(block.feed_forward, MoeConfig)
    if block.feed_forward.latent is not None:
        layout[f"{theirs}fc1_latent_proj.weight"] = maps_to(f"{ours}latent_down.weight")
        layout[f"{theirs}fc2_latent_proj.weight"] = maps_to(f"{ours}latent_up.weight")
    return layout | mixture_layout(ours, theirs, block.feed_forward)


def nemotron_layout(config: ModelConfig) -> Layout:
    layout = {"backbone.embeddings.weight": maps_to("embedding.weight"), "backbone.norm_f.weight": maps_to("norm.gain")}
    if not config.tied_embeddings:
        layout["lm_head.weight"] = maps_to("output.weight")
    for layer, block in enumerate(blocks_of(config)):
        layout |= block_layout(f"blocks.{layer}.", f"backbone.layers.{layer}.", block)
    return layout


NEMOTRON_H = Family(("nemotron_h",), "NemotronHForCausalLM", read_nemotron, write_nemotron, nemotron_layout)
