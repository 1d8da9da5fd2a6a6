"""Llama, Qwen 2, Qwen 3 and SmolLM 3: pre-norm, softmax attention and a gated feed-forward in every layer.

They differ in the norm of queries and keys (Qwen 3), biases (Qwen 2), windows and layers without positions (SmolLM 3).
"""

from __future__ import annotations

from collections.abc import Callable

from ingot.checkpoints.families import common
from ingot.checkpoints.families.family import Family
from ingot.checkpoints.families.keys import FULL, SLIDING, Keys, Values
from ingot.checkpoints.families.layouts import stacked
from ingot.checkpoints.families.rotary import read_rope
from ingot.model.config import ModelConfig
from ingot.model.feed_forward.dense import FeedForwardConfig

LONG = 32_768  # the context of all but Llama where config.json names none


def read_llama(keys: Keys) -> ModelConfig:
    keys.ignore("is_llama_config")
    keys.expect(rope_interleaved=False)
    attention = common.read_attention(keys, biases=False, rope=read_rope(keys))
    common.expect_divisible(keys, attention)
    feed_forward = common.read_feed_forward(keys, 11008, bias=keys.get("mlp_bias", False))
    return common.make_model(keys, _blocks(keys, attention, feed_forward), epsilon=1e-6)


def write_llama(config: ModelConfig) -> Values:
    return _write(config) | _write_biases(config)


def read_qwen2(keys: Keys) -> ModelConfig:
    attention = common.read_attention(
        keys, key_value_heads=32, query_key_value_bias=True, rope=read_rope(keys, context=LONG)
    )
    return _read_qwen(keys, attention)


def write_qwen2(config: ModelConfig) -> Values:
    return _write(config) | write_windows(config)


def read_qwen3(keys: Keys) -> ModelConfig:
    rope = read_rope(keys, context=LONG)
    attention = common.read_attention(keys, key_value_heads=32, head_width=128, biases=False, rope=rope)
    return _read_qwen(keys, {**attention, "query_key_norm": "head"})


def write_qwen3(config: ModelConfig) -> Values:
    return _write(config) | write_windows(config) | common.write_bias(config)


def _read_qwen(keys: Keys, attention: Values) -> ModelConfig:
    first = keys.get("max_window_layers", 28)
    windows = read_windows(keys, lambda layer: layer >= first)
    blocks = _blocks(keys, attention, common.read_feed_forward(keys, 22016), windows)
    return common.make_model(keys, blocks, epsilon=1e-6, context=LONG)


def read_smollm3(keys: Keys) -> ModelConfig:
    keys.ignore("max_window_layers")
    rope, rotated = read_rope(keys, base=2_000_000.0, context=LONG), common.read_rotated(keys)
    attention = common.read_attention(keys, heads=16, key_value_heads=4, biases=False, rope=rope)
    windows = read_windows(keys, lambda layer: not rotated[layer], window=None)
    feed_forward = common.read_feed_forward(keys, 11008, bias=keys.get("mlp_bias", False))
    blocks = _blocks(keys, attention, feed_forward, windows)
    for layer, block in enumerate(blocks):
        if not rotated[layer]:
            block["mixer"]["rope"] = None
    return common.make_model(keys, blocks, epsilon=1e-6, context=LONG, tied=True)


def write_smollm3(config: ModelConfig) -> Values:
    return _write(config) | _write_biases(config) | write_windows(config) | common.write_rotated(config)


def read_windows(keys: Keys, windowed: Callable[[int], bool], window: int | None = 4096) -> list[int | None]:
    """The window of every layer where `use_sliding_window` switches them on; `windowed` where `layer_types` is missing."""
    used, window = keys.get("use_sliding_window", False), keys.raw("sliding_window", window)
    window = window if used else None
    types = common.read_layer_types(keys, lambda layer: SLIDING if window and windowed(layer) else FULL)
    return [window if kind == SLIDING else None for kind in types]


def write_windows(config: ModelConfig) -> Values:
    """The same in config.json."""
    written = common.write_layer_types(config)
    return {
        **written,
        "use_sliding_window": SLIDING in written["layer_types"],
        "max_window_layers": config.depth,
    }


def _blocks(
    keys: Keys, attention: Values, feed_forward: Values, windows: list[int | None] | None = None
) -> list[Values]:
    """The same parts in every layer, apart from the windows."""
    windows = windows or [None] * keys.need("num_hidden_layers")
    return [{"mixer": {**attention, "window": window}, "feed_forward": feed_forward} for window in windows]


def _write(config: ModelConfig) -> Values:
    return common.softmax_config(config) | common.write_feed_forward(config)


def _write_biases(config: ModelConfig) -> Values:
    return common.write_bias(config) | {"mlp_bias": common.need(config, FeedForwardConfig).bias}


LLAMA = Family(("llama",), "LlamaForCausalLM", read_llama, write_llama, stacked())
QWEN2 = Family(("qwen2",), "Qwen2ForCausalLM", read_qwen2, write_qwen2, stacked())
QWEN3 = Family(("qwen3",), "Qwen3ForCausalLM", read_qwen3, write_qwen3, stacked())
SMOLLM3 = Family(("smollm3",), "SmolLM3ForCausalLM", read_smollm3, write_smollm3, stacked())
