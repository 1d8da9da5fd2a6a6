"""Qwen 1.5/2 MoE and Qwen 3 MoE: the attention of Qwen, with mixtures of experts that route by softmax.

Qwen 2 MoE has a shared expert behind a gate; Qwen 3 MoE has none, and norms queries and keys. `mlp_only_layers` and
`decoder_sparse_step` leave some layers dense.
"""

from __future__ import annotations

from ingot.checkpoints.families import common
from ingot.checkpoints.families.family import Family
from ingot.checkpoints.families.keys import Keys, Values
from ingot.checkpoints.families.layouts import Names, stacked
from ingot.checkpoints.families.llama import read_windows, write_windows
from ingot.checkpoints.families.mixture import dense_layers, read_mixture, with_shared, write_mixture
from ingot.checkpoints.families.rotary import read_rope
from ingot.model.config import ModelConfig
from ingot.model.feed_forward.mixture import MoeConfig
from ingot.model.mixers.attention import AttentionConfig

CONTEXT = 32768
NAMES = Names(shared="shared_expert")


def read_qwen2_moe(keys: Keys) -> ModelConfig:
    rope, bias = read_rope(keys, context=CONTEXT), keys.get("qkv_bias", True)
    attention = common.read_attention(keys, heads=16, key_value_heads=16, query_key_value_bias=bias, rope=rope)
    last = keys.get("max_window_layers", 28)
    windows = read_windows(keys, lambda layer: layer % 2 == 0 and layer < last)
    mixture = read_mixture(keys, experts=60, active=4, width=1408, router=read_softmax_router(keys))
    mixture = with_shared(mixture, keys.get("shared_expert_intermediate_size", 5632), shared_gate=True)
    return _read(keys, attention, windows, mixture, dense=5632)


def write_qwen2_moe(config: ModelConfig) -> Values:
    shared = common.need(config, MoeConfig).shared
    return {
        **_write(config),
        **write_windows(config),
        "qkv_bias": common.need(config, AttentionConfig).query_key_value_bias,
        "shared_expert_intermediate_size": shared.width if shared else 0,
    }


def read_qwen3_moe(keys: Keys) -> ModelConfig:
    keys.ignore("max_window_layers")
    rope = read_rope(keys, context=CONTEXT)
    attention = common.read_attention(keys, key_value_heads=4, query_key_norm="head", biases=False, rope=rope)
    windows = read_windows(keys, lambda layer: True)  # in all layers or in none
    mixture = read_mixture(keys, experts=128, active=8, width=768, router=read_softmax_router(keys))
    return _read(keys, attention, windows, mixture, dense=6144)


def write_qwen3_moe(config: ModelConfig) -> Values:
    window = common.need(config, AttentionConfig).window
    return {
        **_write(config),
        **common.write_bias(config),
        "use_sliding_window": window is not None,
        "sliding_window": window,
    }


def read_softmax_router(keys: Keys, renormalise: bool = False) -> Values:
    """A router by softmax; `renormalise` is the default of its one key."""
    return {"renormalise": keys.get("norm_topk_prob", renormalise)}


def read_channels(keys: Keys, dense: Values, mixture: Values) -> list[Values]:
    """The feed-forward of every layer: the mixture, but for the layers that two keys leave dense."""
    step, exceptions = keys.get("decoder_sparse_step", 1), keys.get("mlp_only_layers", list[int]())
    layers = range(keys.need("num_hidden_layers"))
    return [dense if (layer + 1) % step or layer in exceptions else mixture for layer in layers]


def write_channels(config: ModelConfig) -> Values:
    """The mixtures, and which layers have one."""
    mixture = common.need(config, MoeConfig)
    return {
        **write_mixture(config),
        "num_experts": mixture.experts,
        "norm_topk_prob": mixture.router.renormalise,
        "decoder_sparse_step": 1,
        "mlp_only_layers": dense_layers(config),
    }


def _read(keys: Keys, attention: Values, windows: list[int | None], mixture: Values, *, dense: int) -> ModelConfig:
    channels = read_channels(keys, common.read_feed_forward(keys, dense), mixture)
    blocks = [
        {"mixer": {**attention, "window": window}, "feed_forward": channel}
        for window, channel in zip(windows, channels, strict=True)
    ]
    return common.make_model(keys, blocks, epsilon=1e-6, context=CONTEXT)


def _write(config: ModelConfig) -> Values:
    return common.softmax_config(config) | write_channels(config)


QWEN2_MOE = Family(("qwen2_moe",), "Qwen2MoeForCausalLM", read_qwen2_moe, write_qwen2_moe, stacked(NAMES.layer))
QWEN3_MOE = Family(("qwen3_moe",), "Qwen3MoeForCausalLM", read_qwen3_moe, write_qwen3_moe, stacked(NAMES.layer))
