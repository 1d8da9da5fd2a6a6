"""MiniMax-Text-01 and M1: lightning attention with softmax attention in between, and a scaled norm-residual rule.

transformers rotates whole heads; the released model's own code rotates half of each (`rotary_dim`). What is written for such
a model says so (`partial_rotary_factor`), but transformers does not look at it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ingot.checkpoints.families.common import (
    FULL,
    attention_layout,
    blocks_of,
    common_config,
    embedding_layout,
    make_model,
    need,
    norm_layout,
    read_activation,
    read_attention,
    read_layer_types,
    rope_of,
    write_attention,
)
from ingot.checkpoints.families.family import Family, Layout
from ingot.checkpoints.families.keys import Keys
from ingot.checkpoints.families.mixture import mixture_layout, write_mixture
from ingot.checkpoints.families.recurrent import lightning_layout
from ingot.checkpoints.families.rotary import read_rope, write_rope_keys
from ingot.model.config import BlockConfig, ModelConfig
from ingot.model.feed_forward.mixture import MoeConfig
from ingot.model.mixers.attention import AttentionConfig
from ingot.model.mixers.lightning import LightningConfig

LINEAR = "linear_attention"
BLOCK = 256  # of the decays that transformers keeps in its checkpoints; any size computes the same
CONTEXT = 131_072
SCALES = {
    "full": ("full_attn", "layernorm_full_attention"),
    "linear": ("linear_attn", "layernorm_linear_attention"),
    "mlp": ("mlp", "layernorm_mlp"),
}
"""The prefix of α and β in config.json, in transformers and in the released files."""


def read_minimax(keys: Keys) -> ModelConfig:
    keys.expect(postnorm=True, shared_intermediate_size=0, layernorm_epsilon=keys.get("rms_norm_eps", 1e-5))
    keys.ignore("block_size", "shared_moe_mode", "sliding_window")
    if keys.get("sliding_window", 0):
        keys.refuse("sliding_window")
    depth, listed = keys.need("num_hidden_layers"), keys.raw("attn_type_list")
    attention = read_attention(keys, heads=32, key_value_heads=8)
    rotary = keys.get("rotary_dim", attention["head_width"])
    rope = read_rope(keys, base=1e6, share=rotary / attention["head_width"], context=CONTEXT)
    lightning = {"kind": "lightning", "heads": attention["heads"], "head_width": attention["head_width"]}
    activation = read_activation(keys)
    mixers = {FULL: {**attention, "rope": rope}, LINEAR: {**lightning, "activation": activation}}
    mixture = {
        "kind": "moe",
        "experts": keys.get("num_local_experts", 8),
        "active": keys.get("num_experts_per_tok", 2),
        "expert": {"width": keys.get("intermediate_size", 14336), "activation": activation},
        "router": {"renormalise": True},
    }
    if listed is not None:
        keys = keys.having(layer_types=[FULL if one else LINEAR for one in listed])
    types = read_layer_types(keys, depth, lambda layer: LINEAR if layer % 2 else FULL, (FULL, LINEAR))
    scales = {name: _scales(keys, *prefixes) for name, prefixes in SCALES.items()}
    blocks = [
        {
            "mixer": mixers[kind],
            "feed_forward": mixture,
            "residual": "norm_residual",
            "mixer_scales": scales["full" if kind == FULL else "linear"],
            "feed_forward_scales": scales["mlp"],
        }
        for kind in types
    ]
    return make_model(keys, blocks, epsilon=1e-5, context=CONTEXT)


def _scales(keys: Keys, ours: str, released: str) -> tuple[float, float]:
    alpha, beta = (keys.get(f"{released}_{name}", 1.0) for name in ("alpha", "beta"))
    return keys.get(f"{ours}_alpha_factor", alpha), keys.get(f"{ours}_beta_factor", beta)


def write_minimax(config: ModelConfig) -> Mapping[str, Any]:
    attention, mixture = need(config, AttentionConfig), need(config, MoeConfig)
    need(config, LightningConfig)
    values: dict[str, Any] = {
        **common_config(config),
        **write_attention(attention),
        **write_rope_keys(rope_of(config)),
        **write_mixture(config),
        "num_local_experts": mixture.experts,
        "intermediate_size": mixture.expert.width,
        "block_size": BLOCK,
    }
    del values["moe_intermediate_size"]
    types = [FULL if isinstance(block.mixer, AttentionConfig) else LINEAR for block in blocks_of(config)]
    for block, kind in zip(blocks_of(config), types, strict=True):
        prefix = SCALES["full" if kind == FULL else "linear"][0]
        values[f"{prefix}_alpha_factor"], values[f"{prefix}_beta_factor"] = block.mixer_scales
        values["mlp_alpha_factor"], values["mlp_beta_factor"] = block.feed_forward_scales
    return {**values, "layer_types": types}


def block_layout(ours: str, theirs: str, block: BlockConfig, config: ModelConfig, layer: int) -> Layout:
    """`self_attn` is either mixer; experts are called block_sparse_moe, with w1, w3 and w2."""
    assert isinstance(block.feed_forward, MoeConfig)
    layout = norm_layout(ours, theirs, mixer_norm="input_layernorm", feed_forward_norm="post_attention_layernorm")
    stem = f"{theirs}self_attn."
    if isinstance(block.mixer, LightningConfig):
        layout |= lightning_layout(f"{ours}mixer.", stem, block.mixer, config.width, layer, config.depth, BLOCK)
    elif isinstance(block.mixer, AttentionConfig):
        layout |= attention_layout(f"{ours}mixer.", stem, block.mixer)
    names = ("w1", "w3", "w2")
    return layout | mixture_layout(
        f"{ours}feed_forward.", f"{theirs}block_sparse_moe.", block.feed_forward, names=names
    )


def minimax_layout(config: ModelConfig) -> Layout:
    layout = embedding_layout(config)
    for layer, block in enumerate(blocks_of(config)):
        layout |= block_layout(f"blocks.{layer}.", f"model.layers.{layer}.", block, config, layer)
    return layout


MINIMAX = Family(
    ("minimax", "minimax_text_01", "minimax_m1"), "MiniMaxForCausalLM", read_minimax, write_minimax, minimax_layout
)
