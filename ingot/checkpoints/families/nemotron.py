"""Nemotron-H (and Nemotron 3): one part per layer, mostly Mamba-2 and feed-forwards, with a few attentions; no positions."""

from __future__ import annotations

from ingot.checkpoints.families import common
from ingot.checkpoints.families.family import Family
from ingot.checkpoints.families.keys import FULL, LINEAR, Keys, Table, Values, written
from ingot.checkpoints.families.layouts import Names, stacked
from ingot.checkpoints.families.mixture import read_mixture, read_v3_router, write_v3_router
from ingot.model.config import BlockConfig, ModelConfig
from ingot.model.feed_forward.dense import FeedForwardConfig
from ingot.model.feed_forward.mixture import MoeConfig
from ingot.model.mixers.attention import AttentionConfig
from ingot.model.mixers.mamba2 import Mamba2Config

MIXTURE, DENSE = "moe", "mlp"
LETTERS = {"M": LINEAR, "*": FULL, "E": MIXTURE, "-": DENSE}
OLDER = {"mamba": LINEAR, "attention": FULL}
SPELLINGS = {
    "mamba_n_groups": "n_groups",
    "mamba_d_conv": "conv_kernel",
    "mamba_dt_min": "time_step_min",
    "mamba_conv_bias": "use_conv_bias",
}
MAMBA: Table = {
    "mamba_num_heads": ("heads", 128),
    "mamba_head_dim": ("head_width", 64),
    "ssm_state_size": ("state", 128),
    "n_groups": ("groups", 8),
    "conv_kernel": ("convolution", 4),
    "use_conv_bias": ("convolution_bias", True),
    "use_bias": ("projection_bias", False),
    "time_step_min": ("time_step_min", 0.001),
}
NAMES = Names(  # every part is called `mixer`, with one norm before it
    norms={"mixer_norm": "norm", "feed_forward_norm": "norm"},
    mixer="mixer",
    recurrent="mixer",
    feed_forward="mixer",
    mixture="mixer",
)


def read_nemotron(keys: Keys) -> ModelConfig:
    keys = common.use_spellings(keys, SPELLINGS)
    keys.expect(mamba_hidden_act="silu", residual_in_fp32=False, num_nextn_predict_layers=0, attention_bias=False)
    keys.expect(n_shared_experts=1)
    keys.ignore("expand", "mamba_expand", "chunk_size", "mamba_chunk_size", "use_mamba_kernels", "mamba_proj_bias")
    keys.ignore("time_step_max", "mamba_dt_max", "time_step_floor", "mamba_dt_init_floor", "mamba_ssm_cache_dtype")
    keys.ignore("time_step_limit", "mamba_dt_limit", "rescale_prenorm_residual", "num_logits_to_keep", "sliding_window")
    keys.ignore("moe_shared_expert_overlap", "mtp_layers_block_type", "mtp_hybrid_override_pattern")
    keys.ignore("num_hidden_layers", "num_query_groups", "attention_head_dim")
    keys.ignore("rope_theta", "rope_parameters", "rope_scaling", "partial_rotary_factor")  # nothing rotates
    bias = keys.get("mlp_bias", False)
    activation, router = common.read_activation(keys, "mlp_hidden_act", "relu2"), read_v3_router(keys, scaling=1.0)
    channel = {"gated": False, "activation": activation, "bias": bias}
    mixture = read_mixture(keys, experts=8, active=2, width=7688, activation=activation, router=router)
    mixture["expert"] |= channel
    mixture["shared"] = {**channel, "width": keys.get("moe_shared_expert_intermediate_size", 7688)}
    mixture["latent"] = keys.raw("moe_latent_size")
    parts: dict[str, Values] = {
        LINEAR: {"mixer": {"kind": "mamba2", **keys.fields(MAMBA), "norm": "gate_first"}},
        FULL: {"mixer": common.read_attention(keys, heads=32, key_value_heads=8, head_width=128, rope=None)},
        DENSE: {"feed_forward": {**channel, "width": keys.get("intermediate_size", 21504)}},
        MIXTURE: {"feed_forward": mixture},
    }
    types = _layer_types(keys)
    if bias and MIXTURE in types:
        keys.refuse("mlp_bias in a model with mixtures")
    norm = {"epsilon": keys.get("layer_norm_epsilon", 1e-5), "cast": "after_gain"}
    return common.make_model(keys, [parts[kind] for kind in types], epsilon=1e-5, context=4096, norm=norm)


def _layer_types(keys: Keys) -> list[str]:
    """A list of kinds, or the letters of a released file."""
    letters, types = keys.raw("hybrid_override_pattern"), keys.raw("layers_block_type", keys.raw("layer_types"))
    types = types or (
        [LETTERS.get(letter, letter) for letter in letters] if letters else [LINEAR, MIXTURE, FULL, DENSE]
    )
    types = [OLDER.get(kind, kind) for kind in types]
    if set(types) - set(LETTERS.values()):
        keys.refuse(f"layers of a kind that is not known: {', '.join(sorted(set(types) - set(LETTERS.values())))}")
    return types


def write_nemotron(config: ModelConfig) -> Values:
    mamba, attention = common.need(config, Mamba2Config), common.first(config, AttentionConfig)
    dense, mixture = common.first(config, FeedForwardConfig), common.first(config, MoeConfig)
    channel = dense or (mixture.expert if mixture is not None else None)
    values = common.common_config(config)
    values["layer_norm_epsilon"] = values.pop("rms_norm_eps")
    values |= {
        **(common.write_attention(attention) if attention is not None else {}),
        **written(mamba, MAMBA),
        "layers_block_type": [_kind(block) for block in common.blocks_of(config)],
        "mamba_proj_bias": mamba.projection_bias,
        "mlp_hidden_act": common.ACTIVATIONS.get(channel.activation) if channel is not None else "relu2",
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
        return LINEAR
    if block.mixer is not None:
        return FULL
    return MIXTURE if isinstance(block.feed_forward, MoeConfig) else DENSE


LAYOUT = stacked(NAMES.layer, stem="backbone.", embedding="embeddings", norm="norm_f")
NEMOTRON_H = Family(("nemotron_h",), "NemotronHForCausalLM", read_nemotron, write_nemotron, LAYOUT)
