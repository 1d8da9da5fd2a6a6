"""Mistral and Mixtral: Llama's parts and one window for all layers; in Mixtral every feed-forward is a mixture.

Mixtral's router takes the softmax over all experts and makes the weights of the chosen ones sum to 1 (arXiv 2401.04088).
"""

from __future__ import annotations

from ingot.checkpoints.families import common
from ingot.checkpoints.families.family import Family
from ingot.checkpoints.families.keys import Keys, Values
from ingot.checkpoints.families.layouts import Names, stacked
from ingot.checkpoints.families.mixture import read_mixture, write_every_mixture
from ingot.checkpoints.families.rotary import read_rope
from ingot.model.config import ModelConfig
from ingot.model.mixers.attention import AttentionConfig

CONTEXT = 131_072
MIXTRAL_NAMES = Names(mixture="block_sparse_moe", experts=("w1", "w3", "w2"))


def read_mistral(keys: Keys) -> ModelConfig:
    attention = _read_attention(keys, base=10_000.0, window=4096)
    return _read(keys, attention, common.read_feed_forward(keys, 14336), epsilon=1e-6)


def write_mistral(config: ModelConfig) -> Values:
    return {**common.softmax_config(config), **common.write_feed_forward(config), **_write_window(config)}


def read_mixtral(keys: Keys) -> ModelConfig:
    attention = _read_attention(keys, base=1_000_000.0, window=None)
    router = {"renormalise": True}
    mixture = read_mixture(keys, experts=8, active=2, width=14336, key="intermediate_size", router=router)
    return _read(keys, attention, mixture, epsilon=1e-5)


def write_mixtral(config: ModelConfig) -> Values:
    mixtures = write_every_mixture(config, "num_local_experts")
    return {**common.softmax_config(config), **mixtures, **_write_window(config)}


def _read_attention(keys: Keys, *, base: float, window: int | None) -> Values:
    """`window` where the key is missing; null means that there is none."""
    rope = read_rope(keys, base=base, context=CONTEXT)
    return common.read_attention(keys, key_value_heads=8, rope=rope, window=keys.raw("sliding_window", window))


def _read(keys: Keys, attention: Values, channel: Values, *, epsilon: float) -> ModelConfig:
    blocks = [{"mixer": attention, "feed_forward": channel}] * keys.need("num_hidden_layers")
    return common.make_model(keys, blocks, epsilon=epsilon, context=CONTEXT)


def _write_window(config: ModelConfig) -> Values:
    return {"sliding_window": common.need(config, AttentionConfig).window}


MISTRAL = Family(("mistral",), "MistralForCausalLM", read_mistral, write_mistral, stacked())
MIXTRAL = Family(("mixtral",), "MixtralForCausalLM", read_mixtral, write_mixtral, stacked(MIXTRAL_NAMES.layer))
