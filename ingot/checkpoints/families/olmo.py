"""OLMo 2 and OLMo 3: norms after the parts, and over all heads of queries and keys at once.

OLMo 3 has windows in three of four layers, and may stretch the rotation of the others.
"""

from __future__ import annotations

from ingot.checkpoints.families import common
from ingot.checkpoints.families.family import Family
from ingot.checkpoints.families.keys import FULL, SLIDING, Keys, Values
from ingot.checkpoints.families.layouts import Names, stacked
from ingot.checkpoints.families.rotary import read_rope, write_ropes_by_type
from ingot.model.config import ModelConfig
from ingot.model.positions.config import RopeConfig

NAMES = Names(  # `post_attention_layernorm` is another norm than in Llama
    norms={"mixer_post_norm": "post_attention_layernorm", "feed_forward_post_norm": "post_feedforward_layernorm"}
)


def read_olmo2(keys: Keys) -> ModelConfig:
    depth = keys.need("num_hidden_layers")
    return _read(keys, [read_rope(keys)] * depth, [None] * depth)


def write_olmo2(config: ModelConfig) -> Values:
    return common.softmax_config(config) | common.write_bias(config) | common.write_feed_forward(config)


def read_olmo3(keys: Keys) -> ModelConfig:
    types = common.read_layer_types(keys, lambda layer: SLIDING if (layer + 1) % 4 else FULL)
    ropes = {kind: read_rope(keys, base=500_000.0, layer_type=kind) for kind in (FULL, SLIDING)}
    window = keys.raw("sliding_window", 4096)
    return _read(keys, [ropes[kind] for kind in types], [window if kind == SLIDING else None for kind in types])


def write_olmo3(config: ModelConfig) -> Values:
    ropes = write_ropes_by_type(common.rope_of(config, windowed=False), common.rope_of(config, windowed=True))
    return write_olmo2(config) | common.write_layer_types(config) | ropes


def _read(keys: Keys, ropes: list[RopeConfig], windows: list[int | None]) -> ModelConfig:
    attention = common.read_attention(keys, query_key_norm="full", biases=False)
    feed_forward = common.read_feed_forward(keys, 11008)
    blocks = [
        {"mixer": {**attention, "rope": rope, "window": window}, "feed_forward": feed_forward, "residual": "post"}
        for rope, window in zip(ropes, windows, strict=True)
    ]
    return common.make_model(keys, blocks, epsilon=1e-5, norm={"cast": "after_gain"})


OLMO2 = Family(("olmo2",), "Olmo2ForCausalLM", read_olmo2, write_olmo2, stacked(NAMES.layer))
OLMO3 = Family(("olmo3",), "Olmo3ForCausalLM", read_olmo3, write_olmo3, stacked(NAMES.layer))
