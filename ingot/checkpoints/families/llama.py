"""Llama, Qwen 2, Qwen 3 and SmolLM 3: pre-norm, softmax attention and a gated feed-forward in every layer.

They differ in the norm of queries and keys (Qwen 3), biases (Qwen 2), windows and layers without positions (SmolLM 3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ingot.checkpoints.families.common import (
    ACTIVATIONS,
    FULL,
    SLIDING,
    attention_layout,
    blocks_of,
    common_config,
    expect_divisible,
    feed_forward_layout,
    make_model,
    need,
    norm_layout,
    read_activation,
    read_attention,
    read_layer_types,
    rope_of,
    stack_layout,
    write_attention,
    write_layer_types,
)
from ingot.checkpoints.families.family import Family, Layout
from ingot.checkpoints.families.keys import Keys
from ingot.checkpoints.families.rotary import read_rope, write_rope_keys
from ingot.model.config import BlockConfig, ModelConfig
from ingot.model.feed_forward.dense import FeedForwardConfig
from ingot.model.mixers.attention import AttentionConfig

LONG = 32_768  # the context of all but Llama where config.json names none


def read_llama(keys: Keys) -> ModelConfig:
    keys.ignore("is_llama_config")
    keys.expect(rope_interleaved=False)
    bias = keys.get("attention_bias", False)
    attention = read_attention(keys, query_key_value_bias=bias, output_bias=bias, rope=read_rope(keys))
    expect_divisible(keys, attention)
    feed_forward = {"width": keys.get("intermediate_size", 11008), "bias": keys.get("mlp_bias", False)}
    return make_model(keys, _blocks(keys, attention, feed_forward), epsilon=1e-6)


def write_llama(config: ModelConfig) -> Mapping[str, Any]:
    return _write(config) | _write_biases(config)


def read_qwen2(keys: Keys) -> ModelConfig:
    attention = read_attention(keys, key_value_heads=32, query_key_value_bias=True, rope=read_rope(keys, context=LONG))
    return _read_qwen(keys, attention)


def write_qwen2(config: ModelConfig) -> Mapping[str, Any]:
    return _write(config) | _write_windows(config)


def read_qwen3(keys: Keys) -> ModelConfig:
    bias = keys.get("attention_bias", False)
    biases = {"query_key_value_bias": bias, "output_bias": bias}
    rope = read_rope(keys, context=LONG)
    attention = read_attention(keys, key_value_heads=32, head_width=128, query_key_norm="head", rope=rope, **biases)
    return _read_qwen(keys, attention)


def write_qwen3(config: ModelConfig) -> Mapping[str, Any]:
    bias = need(config, AttentionConfig).query_key_value_bias
    return _write(config) | _write_windows(config) | {"attention_bias": bias}


def _read_qwen(keys: Keys, attention: dict[str, Any]) -> ModelConfig:
    first = keys.get("max_window_layers", 28)
    windows = read_windows(keys, lambda layer: layer >= first)
    blocks = _blocks(keys, attention, {"width": keys.get("intermediate_size", 22016)}, windows)
    return make_model(keys, blocks, epsilon=1e-6, context=LONG)


def read_smollm3(keys: Keys) -> ModelConfig:
    keys.ignore("max_window_layers")
    bias = keys.get("attention_bias", False)
    rope = read_rope(keys, base=2_000_000.0, context=LONG)
    biases = {"query_key_value_bias": bias, "output_bias": bias}
    attention = read_attention(keys, heads=16, key_value_heads=4, rope=rope, **biases)
    depth, interval = keys.need("num_hidden_layers"), keys.get("no_rope_layer_interval", 4)
    rotated = keys.raw("no_rope_layers") or [int((layer + 1) % interval != 0) for layer in range(depth)]
    windows = read_windows(keys, lambda layer: not rotated[layer], window=None)
    feed_forward = {"width": keys.get("intermediate_size", 11008), "bias": keys.get("mlp_bias", False)}
    blocks = _blocks(keys, attention, feed_forward, windows)
    for layer, block in enumerate(blocks):
        if not rotated[layer]:  # despite the name of the key, 1 means: with positions
            block["mixer"]["rope"] = None
    return make_model(keys, blocks, epsilon=1e-6, context=LONG, tied=True)


def write_smollm3(config: ModelConfig) -> Mapping[str, Any]:
    mixers = [block.mixer for block in blocks_of(config)]
    rotated = [int(isinstance(mixer, AttentionConfig) and mixer.rope is not None) for mixer in mixers]
    return _write(config) | _write_biases(config) | _write_windows(config) | {"no_rope_layers": rotated}


def read_windows(keys: Keys, windowed: Callable[[int], bool], window: int | None = 4096) -> list[int | None]:
    """The window of every layer where `use_sliding_window` switches them on; `windowed` where `layer_types` is missing."""
    depth, used = keys.need("num_hidden_layers"), keys.get("use_sliding_window", False)
    window = keys.raw("sliding_window", window)
    window = window if used else None
    types = read_layer_types(keys, depth, lambda layer: SLIDING if window and windowed(layer) else FULL)
    return [window if kind == SLIDING else None for kind in types]


def _write_windows(config: ModelConfig) -> dict[str, Any]:
    written = write_layer_types(config)
    return {**written, "use_sliding_window": SLIDING in written["layer_types"], "max_window_layers": config.depth}


def _blocks(
    keys: Keys, attention: dict[str, Any], feed_forward: dict[str, Any], windows: list[int | None] | None = None
) -> list[dict[str, Any]]:
    """The same parts in every layer, apart from the windows."""
    windows = windows or [None] * keys.need("num_hidden_layers")
    feed_forward = {**feed_forward, "activation": read_activation(keys)}
    return [{"mixer": {**attention, "window": window}, "feed_forward": feed_forward} for window in windows]


def _write(config: ModelConfig) -> dict[str, Any]:
    feed_forward = need(config, FeedForwardConfig)
    return {
        **common_config(config),
        **write_attention(need(config, AttentionConfig)),
        **write_rope_keys(rope_of(config)),
        "intermediate_size": feed_forward.width,
        "hidden_act": ACTIVATIONS.get(feed_forward.activation),
    }


def _write_biases(config: ModelConfig) -> dict[str, Any]:
    attention, feed_forward = need(config, AttentionConfig), need(config, FeedForwardConfig)
    return {"attention_bias": attention.query_key_value_bias, "mlp_bias": feed_forward.bias}


def block_layout(ours: str, theirs: str, block: BlockConfig) -> Layout:
    """A norm before each of the two parts."""
    assert isinstance(block.mixer, AttentionConfig) and isinstance(block.feed_forward, FeedForwardConfig)
    layout = norm_layout(ours, theirs, mixer_norm="input_layernorm", feed_forward_norm="post_attention_layernorm")
    layout |= attention_layout(f"{ours}mixer.", f"{theirs}self_attn.", block.mixer)
    return layout | feed_forward_layout(f"{ours}feed_forward.", f"{theirs}mlp.", block.feed_forward)


def dense_layout(config: ModelConfig) -> Layout:
    return stack_layout(config, block_layout)


LLAMA = Family(("llama",), "LlamaForCausalLM", read_llama, write_llama, dense_layout)
QWEN2 = Family(("qwen2",), "Qwen2ForCausalLM", read_qwen2, write_qwen2, dense_layout)
QWEN3 = Family(("qwen3",), "Qwen3ForCausalLM", read_qwen3, write_qwen3, dense_layout)
SMOLLM3 = Family(("smollm3",), "SmolLM3ForCausalLM", read_smollm3, write_smollm3, dense_layout)
