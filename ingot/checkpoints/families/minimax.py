"""MiniMax-Text-01 and M1: lightning attention with softmax attention in between, and a scaled norm-residual rule.

transformers rotates whole heads; the released model's own code rotates half of each (`rotary_dim`). What is written for such
a model says so (`partial_rotary_factor`), but transformers does not look at it.
"""

from __future__ import annotations

from ingot.checkpoints.families import common
from ingot.checkpoints.families.family import Family
from ingot.checkpoints.families.keys import FULL, LINEAR, Keys, Values
from ingot.checkpoints.families.layouts import Names, stacked
from ingot.checkpoints.families.mixture import read_mixture, write_every_mixture
from ingot.checkpoints.families.recurrent import LIGHTNING_BLOCK
from ingot.checkpoints.families.rotary import read_rope
from ingot.model.config import ModelConfig
from ingot.model.mixers.attention import AttentionConfig
from ingot.model.mixers.lightning import LightningConfig

CONTEXT = 131_072
NAMES = Names(mixture="block_sparse_moe", experts=("w1", "w3", "w2"))
SCALES = {
    FULL: ("full_attn", "layernorm_full_attention"),
    LINEAR: ("linear_attn", "layernorm_linear_attention"),
    "mlp": ("mlp", "layernorm_mlp"),
}
"""The prefix of α and β in config.json, in transformers and in the released files."""


def read_minimax(keys: Keys) -> ModelConfig:
    keys.expect(postnorm=True, shared_intermediate_size=0, layernorm_epsilon=keys.get("rms_norm_eps", 1e-5))
    keys.ignore("block_size", "shared_moe_mode", "sliding_window")
    if keys.get("sliding_window", 0):
        keys.refuse("sliding_window")
    attention = common.read_attention(keys, heads=32, key_value_heads=8)
    width, listed = attention["head_width"], keys.raw("attn_type_list")
    attention["rope"] = read_rope(keys, base=1e6, share=keys.get("rotary_dim", width) / width, context=CONTEXT)
    lightning = {"kind": "lightning", "heads": attention["heads"], "head_width": width}
    mixers = {FULL: attention, LINEAR: {**lightning, "activation": common.read_activation(keys)}}
    router = {"renormalise": True}
    mixture = read_mixture(keys, experts=8, active=2, width=14336, key="intermediate_size", router=router)
    if listed is not None:
        keys = keys.having(layer_types=[FULL if one else LINEAR for one in listed])
    types = common.read_layer_types(keys, lambda layer: LINEAR if layer % 2 else FULL, (FULL, LINEAR))
    scales = {name: _scales(keys, *prefixes) for name, prefixes in SCALES.items()}
    blocks = [
        {
            "mixer": mixers[kind],
            "feed_forward": mixture,
            "residual": "norm_residual",
            "mixer_scales": scales[kind],
            "feed_forward_scales": scales["mlp"],
        }
        for kind in types
    ]
    return common.make_model(keys, blocks, epsilon=1e-5, context=CONTEXT)


def _scales(keys: Keys, ours: str, released: str) -> tuple[float, float]:
    alpha, beta = (keys.get(f"{released}_{name}", 1.0) for name in ("alpha", "beta"))
    return keys.get(f"{ours}_alpha_factor", alpha), keys.get(f"{ours}_beta_factor", beta)


def write_minimax(config: ModelConfig) -> Values:
    common.need(config, LightningConfig)
    types = common.write_recurrent_types(config, AttentionConfig)
    values = {
        **common.softmax_config(config),
        **write_every_mixture(config, "num_local_experts"),
        **types,
        "block_size": LIGHTNING_BLOCK,
    }
    for block, kind in zip(common.blocks_of(config), types["layer_types"], strict=True):
        prefix, _ = SCALES[kind]
        values[f"{prefix}_alpha_factor"], values[f"{prefix}_beta_factor"] = block.mixer_scales
        values["mlp_alpha_factor"], values["mlp_beta_factor"] = block.feed_forward_scales
    return values


MINIMAX = Family(
    ("minimax", "minimax_text_01", "minimax_m1"),
    "MiniMaxForCausalLM",
    read_minimax,
    write_minimax,
    stacked(NAMES.layer),
)
