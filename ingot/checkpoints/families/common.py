"""What many families share: common keys of config.json, and layouts of common parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ingot.checkpoints.families.family import Layout, View, maps_to, rows
from ingot.checkpoints.families.keys import Keys
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


def read_activation(keys: Keys, name: str = "hidden_act", default: str = "silu") -> str:
    """Our name of the activation."""
    theirs = keys.get(name, default)
    known = {value: key for key, value in ACTIVATIONS.items()} | {"swish": "silu"}
    if theirs not in known:
        keys.refuse(f"{name} = {theirs!r}; known are {', '.join(known)}")
    return known[theirs]


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


def rope_of(config: ModelConfig, windowed: bool | None = None) -> RopeConfig | None:
    """The rotation of the first layer that has one; `windowed` looks only at layers with a window, or without."""
    mixers = (block.mixer for block in blocks_of(config))
    attentions = (mixer for mixer in mixers if isinstance(mixer, AttentionConfig) and mixer.rope is not None)
    return next((one.rope for one in attentions if windowed in (None, one.window is not None)), None)


def common_config(config: ModelConfig) -> dict[str, Any]:
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


def read_attention(
    keys: Keys, *, heads: int = 32, key_value_heads: int | None = None, head_width: int | None = None, **values: Any
) -> dict[str, Any]:
    """Heads and widths as nearly all families spell them; the named arguments are the class defaults."""
    heads = keys.get("num_attention_heads", heads)
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


def write_attention(attention: AttentionConfig) -> dict[str, Any]:
    """The same in config.json."""
    return {
        "num_attention_heads": attention.heads,
        "num_key_value_heads": attention.key_value_heads,
        "head_dim": attention.head_width,
    }


FULL, SLIDING = "full_attention", "sliding_attention"


def read_layer_types(
    keys: Keys, depth: int, default: Callable[[int], str], known: Sequence[str] = (FULL, SLIDING)
) -> list[str]:
    """`layer_types`, or what the class makes of the layers' numbers (from 0) where it is missing."""
    types = keys.raw("layer_types") or [default(layer) for layer in range(depth)]
    if len(types) != depth or set(types) - set(known):
        keys.refuse(f"layer_types {types} of {depth} layers; known are {', '.join(known)}")
    return list(types)


def write_layer_types(config: ModelConfig) -> dict[str, Any]:
    """The same in config.json, and the window (transformers wants one even where no layer has it)."""
    windows = [block.mixer.window for block in blocks_of(config) if isinstance(block.mixer, AttentionConfig)]
    return {
        "layer_types": [FULL if window is None else SLIDING for window in windows],
        "sliding_window": next((window for window in windows if window is not None), config.context),
    }


def stack_layout(config: ModelConfig, block_layout: Callable[[str, str, BlockConfig], Layout]) -> Layout:
    """Embedding, layers, last norm and head."""
    layout = embedding_layout(config)
    for layer, block in enumerate(blocks_of(config)):
        layout |= block_layout(f"blocks.{layer}.", f"model.layers.{layer}.", block)
    return layout


def embedding_layout(config: ModelConfig, stem: str = "model.", norm: str = "norm") -> Layout:
    """Embedding, last norm, and the head if it is a matrix of its own."""
    layout = {
        f"{stem}embed_tokens.weight": maps_to("embedding.weight"),
        f"{stem}{norm}.weight": maps_to("norm.gain"),
    }
    if not config.tied_embeddings:
        layout["lm_head.weight"] = maps_to("output.weight")
    return layout


def norm_layout(ours: str, theirs: str, **names: str) -> Layout:
    """Norms: `mixer_norm="input_layernorm"` says that blocks.N.mixer_norm.gain is …input_layernorm.weight."""
    return {f"{theirs}{name}.weight": maps_to(f"{ours}{part}.gain") for part, name in names.items()}


def attention_layout(ours: str, theirs: str, attention: AttentionConfig, output: str = "o_proj") -> Layout:
    """Separate query, key, value and output projections, and norms of queries and keys."""
    query, key = attention.heads * attention.head_width, attention.key_value_heads * attention.head_width
    cuts = {"q_proj": rows(0, query), "k_proj": rows(query, query + key), "v_proj": rows(query + key, query + 2 * key)}
    layout: Layout = {}
    for kind in ("weight", "bias") if attention.query_key_value_bias else ("weight",):
        for name, cut in cuts.items():
            layout[f"{theirs}{name}.{kind}"] = maps_to(f"{ours}query_key_value.{kind}", cut)
    layout[f"{theirs}{output}.weight"] = maps_to(f"{ours}output.weight")
    if attention.output_bias:
        layout[f"{theirs}{output}.bias"] = maps_to(f"{ours}output.bias")
    if attention.query_key_norm in ("head", "full"):
        layout[f"{theirs}q_norm.weight"] = maps_to(f"{ours}query_norm.gain")
        layout[f"{theirs}k_norm.weight"] = maps_to(f"{ours}key_norm.gain")
    return layout


def feed_forward_layout(
    ours: str,
    theirs: str,
    config: FeedForwardConfig,
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
) -> Layout:
    """Separate gate, up and down projections (up and down only if it has no gate)."""
    gate, up, down = names
    layout: Layout = {}
    for kind in ("weight", "bias") if config.bias else ("weight",):
        if config.gated:
            layout[f"{theirs}{gate}.{kind}"] = maps_to(f"{ours}gate_up.{kind}", rows(0, config.width))
            layout[f"{theirs}{up}.{kind}"] = maps_to(f"{ours}gate_up.{kind}", rows(config.width, 2 * config.width))
        else:
            layout[f"{theirs}{up}.{kind}"] = maps_to(f"{ours}up.{kind}")
        layout[f"{theirs}{down}.{kind}"] = maps_to(f"{ours}down.{kind}")
    return layout


def experts_layout(
    ours: str,
    theirs: str,
    experts: int,
    config: FeedForwardConfig,
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
) -> Layout:
    """One tensor per expert and projection; ours are stacked along the first axis."""
    gate, up, down = names
    layout: Layout = {}
    for expert in range(experts):
        stem = f"{theirs}{expert}."
        if config.gated:
            layout[f"{stem}{gate}.weight"] = maps_to(f"{ours}gate_up", _expert(expert, slice(0, config.width)))
            layout[f"{stem}{up}.weight"] = maps_to(f"{ours}gate_up", _expert(expert, slice(config.width, None)))
        else:
            layout[f"{stem}{up}.weight"] = maps_to(f"{ours}up", _expert(expert, slice(None)))
        layout[f"{stem}{down}.weight"] = maps_to(f"{ours}down", _expert(expert, slice(None)))
    return layout


def _expert(expert: int, cut: slice) -> View:
    return lambda tensor: tensor[expert, cut]
