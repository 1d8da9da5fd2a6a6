"""Keys of config.json that many families share: how they are read into a model's configuration, and written again.

Defaults are those of the transformers class, which each family passes in. layouts.py has the names of the tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ingot.checkpoints.families.keys import FULL, LINEAR, SLIDING, Keys, Values
from ingot.checkpoints.families.rotary import write_rope_keys
from ingot.model.config import BlockConfig, ModelConfig
from ingot.model.feed_forward.dense import FeedForwardConfig
from ingot.model.layers import spell_layers
from ingot.model.mixers.attention import AttentionConfig
from ingot.model.positions.config import RopeConfig
from ingot.workspace.errors import ArtifactError

P = TypeVar("P")

ACTIVATIONS = {
    "silu": "silu",
    "gelu": "gelu",
    "gelu_tanh": "gelu_pytorch_tanh",
    "relu": "relu",
    "relu_squared": "relu2",
}
"""Ours: theirs."""


# ---- reading


def make_model(
    keys: Keys,
    blocks: Sequence[Mapping[str, Any]],
    *,
    epsilon: float,
    context: int = 2048,
    tied: bool = False,
    **values: Any,
) -> ModelConfig:
    """The ModelConfig with the keys that all families share. `blocks` has an entry per layer, equal ones share a name.

    `epsilon`, `context` and `tied` are the class defaults; `values` are further fields (nested ones as dictionaries).
    """
    names, named = name_blocks(blocks)
    norm = {"epsilon": keys.get("rms_norm_eps", epsilon), **values.pop("norm", {})}
    defaults = {
        "vocabulary_size": keys.need("vocab_size"),
        "width": keys.need("hidden_size"),
        "context": keys.get("max_position_embeddings", context),
        "tied_embeddings": keys.get("tie_word_embeddings", tied),
        "initial": {"std": keys.get("initializer_range", 0.02) or None},
        "blocks": named,
        "layers": spell_layers(names),
        "norm": norm,
        "export_as": keys.need("model_type"),
    }
    return ModelConfig.model_validate(defaults | values)


def name_blocks(blocks: Sequence[Mapping[str, Any]]) -> tuple[list[str], dict[str, Mapping[str, Any]]]:
    """A name per layer (a, b, c … in order of appearance) and the block of each name."""
    names: list[str] = []
    named: dict[str, Mapping[str, Any]] = {}
    for block in blocks:
        name = next((name for name, known in named.items() if known == block), None)
        if name is None:
            name = describe_block(block)
            same = [other for other in named if other == name or other.startswith(f"{name}_")]
            name = f"{name}_{len(same) + 1}" if same else name
            named[name] = block
        names.append(name)
    return names, named


def describe_block(block: Mapping[str, Any]) -> str:
    """A word for a block: its mixer (windowed, chunked or not) and whether its feed-forward is a mixture."""
    mixer, channel = block.get("mixer"), block.get("feed_forward")
    word = "feed_forward" if mixer is None else str(mixer.get("kind", "attention"))
    if mixer is not None and word == "attention":
        word = "window" if mixer.get("window") else "chunk" if mixer.get("chunk") else "full"
    return f"{word}_moe" if channel is not None and channel.get("kind") == "moe" else word


def read_activation(keys: Keys, name: str = "hidden_act", default: str = "silu") -> str:
    """Our name of the activation."""
    theirs = keys.get(name, default)
    known = {value: key for key, value in ACTIVATIONS.items()} | {"swish": "silu"}
    if theirs not in known:
        keys.refuse(f"{name} = {theirs!r}; known are {', '.join(known)}")
    return known[theirs]


def read_feed_forward(keys: Keys, width: int, key: str = "intermediate_size", **values: Any) -> Values:
    """A dense feed-forward; `values` are further fields."""
    return {"width": keys.get(key, width), "activation": read_activation(keys), **values}


def read_attention(
    keys: Keys,
    *,
    heads: int = 32,
    key_value_heads: int | None = None,
    head_width: int | None = None,
    biases: bool | None = None,
    **values: Any,
) -> Values:
    """Heads and widths as nearly all families spell them.

    `biases` is the default of `attention_bias`, which stands for all projections; None where there is no such key.
    """
    heads = keys.get("num_attention_heads", heads)
    if biases is not None:
        bias = keys.get("attention_bias", biases)
        values |= {"query_key_value_bias": bias, "output_bias": bias}
    return {
        "heads": heads,
        "key_value_heads": keys.raw("num_key_value_heads", key_value_heads) or heads,
        "head_width": keys.raw("head_dim", head_width) or keys.need("hidden_size") // heads,
        **values,
    }


def expect_divisible(keys: Keys, attention: Mapping[str, Any]) -> None:
    """Refuse a width that is not a multiple of the heads, as some transformers classes do even if the head's width is given."""
    if keys.need("hidden_size") % attention["heads"]:
        keys.refuse(
            f"hidden_size {keys.need('hidden_size')} is not a multiple of num_attention_heads {attention['heads']}"
        )


def read_layer_types(keys: Keys, default: Callable[[int], str], known: Sequence[str] = (FULL, SLIDING)) -> list[str]:
    """`layer_types`, or what the class makes of the layers' numbers (from 0) where it is missing."""
    depth = keys.need("num_hidden_layers")
    types = keys.raw("layer_types") or [default(layer) for layer in range(depth)]
    if len(types) != depth or set(types) - set(known):
        keys.refuse(f"layer_types {types} of {depth} layers; known are {', '.join(known)}")
    return list(types)


def use_spellings(keys: Keys, spellings: Mapping[str, str]) -> Keys:
    """The same keys with other spellings (their name: the usual one) translated."""
    for name, usual in spellings.items():
        value = keys.raw(name)
        if value is not None:
            keys = keys.having(**{usual: value})
    return keys


def read_rotated(keys: Keys) -> list[int]:
    """Which layers have positions: `no_rope_layers`, in which despite its name 1 means that there are some."""
    depth, interval = keys.need("num_hidden_layers"), keys.get("no_rope_layer_interval", 4)
    return keys.raw("no_rope_layers") or [int((layer + 1) % interval != 0) for layer in range(depth)]


# ---- writing


def blocks_of(config: ModelConfig) -> list[BlockConfig]:
    """Every layer's block."""
    return [config.block(layer) for layer in range(config.depth)]


def first(config: ModelConfig, kind: type[P]) -> P | None:
    """The first part of a kind (mixer or feed-forward).

    Enough to write a config.json from: where another layer differs, reading it back does not give the same model.
    """
    found = (part for block in blocks_of(config) for part in (block.mixer, block.feed_forward))
    return next((part for part in found if isinstance(part, kind)), None)


def need(config: ModelConfig, kind: type[P]) -> P:
    """The first part of a kind, which the family cannot do without."""
    found = first(config, kind)
    if found is None:
        raise ArtifactError(f"no layer has a {kind.__name__.removesuffix('Config')}")
    return found


def attentions_of(config: ModelConfig) -> list[AttentionConfig]:
    """The softmax attentions of the layers that have one."""
    return [block.mixer for block in blocks_of(config) if isinstance(block.mixer, AttentionConfig)]


def rope_of(config: ModelConfig, windowed: bool | None = None) -> RopeConfig | None:
    """The rotation of the first layer that has one; `windowed` looks only at layers with a window, or without."""
    rotated = (one for one in attentions_of(config) if one.rope is not None)
    return next((one.rope for one in rotated if windowed in (None, one.window is not None)), None)


def common_config(config: ModelConfig) -> Values:
    """The keys of config.json that all families share."""
    tokens = ("bos_token_id", "eos_token_id", "pad_token_id")  # the classes' defaults may lie outside of the vocabulary
    return {
        **dict.fromkeys(tokens),
        "vocab_size": config.vocabulary_size,
        "hidden_size": config.width,
        "num_hidden_layers": config.depth,
        "max_position_embeddings": config.context,
        "initializer_range": config.initial.std or config.initial.scale / config.width**0.5,
        "rms_norm_eps": config.norm.epsilon,
        "tie_word_embeddings": config.tied_embeddings,
    }


def softmax_config(config: ModelConfig, *, partial: bool = False) -> Values:
    """Those, the heads and the rotation; `partial` writes the rotated share even if it is 1."""
    attention = write_attention(need(config, AttentionConfig))
    return {**common_config(config), **attention, **write_rope_keys(rope_of(config), partial=partial)}


def write_attention(attention: AttentionConfig) -> Values:
    """Heads and widths."""
    return {
        "num_attention_heads": attention.heads,
        "num_key_value_heads": attention.key_value_heads,
        "head_dim": attention.head_width,
    }


def write_bias(config: ModelConfig) -> Values:
    """`attention_bias`, where one key stands for all projections."""
    return {"attention_bias": need(config, AttentionConfig).query_key_value_bias}


def write_feed_forward(config: ModelConfig, activation: str = "hidden_act") -> Values:
    """The dense feed-forward; `activation` is the key of its activation."""
    feed_forward = need(config, FeedForwardConfig)
    return {"intermediate_size": feed_forward.width, activation: ACTIVATIONS.get(feed_forward.activation)}


def write_rotated(config: ModelConfig) -> Values:
    """Which layers have positions."""
    return {"no_rope_layers": [int(attention.rope is not None) for attention in attentions_of(config)]}


def write_layer_types(config: ModelConfig) -> Values:
    """Which layers have windows, and the window (transformers wants one even where no layer has it)."""
    windows = [attention.window for attention in attentions_of(config)]
    return {
        "layer_types": [FULL if window is None else SLIDING for window in windows],
        "sliding_window": next((window for window in windows if window is not None), config.context),
    }


def write_recurrent_types(config: ModelConfig, softmax: type) -> Values:
    """`layer_types` of a model with recurrent mixers: which layers have attention of the type `softmax`."""
    return {"layer_types": [FULL if isinstance(block.mixer, softmax) else LINEAR for block in blocks_of(config)]}
