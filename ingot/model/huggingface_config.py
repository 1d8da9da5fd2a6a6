"""A model's configuration as a Hugging Face config.json, and back.

A Hugging Face model type fixes some parts (Qwen 3 normalises queries and keys, Qwen 2 has biases, SmolLM 3 may leave
positions out) and leaves the numbers to config.json. `FAMILIES` says which parts each type has; a model is exported as
the first type that has exactly its parts, and what no type can express is an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import ValidationError

from ingot.model.config import ModelConfig
from ingot.workspace.errors import ArtifactError

ACTIVATIONS = {"silu": "silu", "gelu_tanh": "gelu_pytorch_tanh"}  # ours: theirs

T = TypeVar("T")


@dataclass(frozen=True)
class Family:
    """The parts of a model type. `windows`, `unrotated`: single layers may have a window, or no positions."""

    model_type: str
    architecture: str
    query_key_norm: bool = False
    bias: bool = False
    windows: bool = False
    unrotated: bool = False
    width_by_heads: bool = False  # transformers refuses a width that is no multiple of the heads
    rope_base: float = 10_000.0  # where config.json says nothing


FAMILIES = (
    Family("llama", "LlamaForCausalLM", width_by_heads=True),
    Family("smollm3", "SmolLM3ForCausalLM", windows=True, unrotated=True, rope_base=2_000_000.0),
    Family("qwen2", "Qwen2ForCausalLM", bias=True, windows=True),
    Family("qwen3", "Qwen3ForCausalLM", query_key_norm=True, windows=True),
)


def huggingface_config(config: ModelConfig) -> dict[str, Any]:
    """The config.json of the model type that has exactly this model's parts; an error if there is none."""
    blocks = [config.block(layer) for layer in range(config.depth)]
    attentions = [block.attention for block in blocks]
    heads = _shared("heads", [a.heads for a in attentions])
    norm = _shared("query_key_norm", [a.query_key_norm for a in attentions])
    bias = _shared("query_key_value_bias", [a.query_key_value_bias for a in attentions])
    windows = [a.window for a in attentions]
    rotated = [a.rope is not None for a in attentions]
    for family in FAMILIES:
        if (
            (family.query_key_norm, family.bias) == (norm, bias)
            and (family.windows or not any(windows))
            and (family.unrotated or all(rotated))
            and not (family.width_by_heads and config.width % heads)
        ):
            break
    else:
        raise ArtifactError(
            f"no Hugging Face model type that Ingot knows has query_key_norm={norm}, query_key_value_bias={bias}, "
            f"windows={any(windows)} and layers without positions={not all(rotated)} together",
            fix=f"the types are: {'; '.join(map(_describe, FAMILIES))}",
        )
    base = _shared("rope base", [a.rope.base for a in attentions if a.rope is not None] or [family.rope_base])
    value: dict[str, Any] = {
        "architectures": [family.architecture],
        "model_type": family.model_type,
        "vocab_size": config.vocabulary_size,
        "hidden_size": config.width,
        "intermediate_size": _shared("feed_forward.width", [block.feed_forward.width for block in blocks]),
        "num_hidden_layers": config.depth,
        "num_attention_heads": heads,
        "num_key_value_heads": _shared("key_value_heads", [a.key_value_heads for a in attentions]),
        "head_dim": _shared("head_width", [a.head_width for a in attentions]),
        "hidden_act": ACTIVATIONS[_shared("activation", [block.feed_forward.activation for block in blocks])],
        "max_position_embeddings": config.context,
        "initializer_range": config.initial_std,
        "rms_norm_eps": config.norm_epsilon,
        "tie_word_embeddings": config.tied_embeddings,
        "rope_theta": base,  # before transformers 5
        "rope_parameters": {"rope_type": "default", "rope_theta": base},
    }
    if family.windows:
        value |= {
            "use_sliding_window": any(windows),
            "sliding_window": _shared("window", [window for window in windows if window is not None] or [None]),
            "layer_types": ["full_attention" if window is None else "sliding_attention" for window in windows],
        }
    if family.unrotated:
        value["no_rope_layers"] = [int(one) for one in rotated]  # 1 means: with positions
    return value


def ingot_config(source: Mapping[str, Any], *, tied: bool, place: str) -> ModelConfig:
    """The model that a Hugging Face config.json describes; `tied` is used where it does not say."""
    family = next((family for family in FAMILIES if family.model_type == source.get("model_type")), None)
    if family is None:
        raise ArtifactError(
            f"unknown model type {source.get('model_type')!r}",
            place=place,
            fix=f"import one of: {', '.join(family.model_type for family in FAMILIES)}",
        )
    required = ("num_hidden_layers", "num_attention_heads", "hidden_size", "intermediate_size", "vocab_size")
    missing = [name for name in required if name not in source]
    if missing:
        raise ArtifactError(f"{', '.join(missing)} missing", place=place, fix="use the model's own config.json")
    depth, heads, width, inner, vocabulary = (source[name] for name in required)
    activation = {theirs: ours for ours, theirs in ACTIVATIONS.items()}.get(source.get("hidden_act", "silu"))
    if activation is None:
        raise ArtifactError(
            f"unknown hidden_act {source['hidden_act']!r}", place=place, fix=f"known: {', '.join(ACTIVATIONS.values())}"
        )
    base = _rope_base(source, family, place)
    rotated = _rotated(source, family, depth)
    attention = {
        "heads": heads,
        "key_value_heads": source.get("num_key_value_heads") or heads,
        "head_width": source.get("head_dim") or width // heads,
        "query_key_norm": family.query_key_norm,
        "query_key_value_bias": source.get("attention_bias", False) or family.bias,
    }
    blocks = [
        {
            "attention": attention | {"rope": {"base": base} if rotated[layer] else None, "window": window},
            "feed_forward": {"width": inner, "activation": activation},
        }
        for layer, window in enumerate(_windows(source, family, depth, place))
    ]
    value = {
        "vocabulary_size": vocabulary,
        "width": width,
        "depth": depth,
        "blocks": _period(blocks),
        "context": source.get("max_position_embeddings", 2048),
        "norm_epsilon": source.get("rms_norm_eps", 1e-6),
        "tied_embeddings": source.get("tie_word_embeddings", tied),
        "initial_std": source.get("initializer_range", 0.02),
    }
    try:
        return ModelConfig.model_validate(value)
    except ValidationError as error:
        raise ArtifactError(f"not a model that can be built: {error}", place=place) from error


def _rope_base(source: Mapping[str, Any], family: Family, place: str) -> float:
    """θ from `rope_parameters` (transformers 5) or from `rope_theta` and `rope_scaling` (before); scaling is refused."""
    rope = {"rope_theta": source.get("rope_theta"), **(source.get("rope_scaling") or {})}
    rope |= source.get("rope_parameters") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    turned = rope.get("partial_rotary_factor", source.get("partial_rotary_factor")) or 1.0
    if kind != "default" or turned != 1.0 or any(isinstance(value, Mapping) for value in rope.values()):
        raise ArtifactError(
            f"rotary positions that Ingot cannot express: {json.dumps(rope)}, partial_rotary_factor {turned}",
            place=place,
            fix="import a model with plain rotary positions (rope_type default)",
        )
    return float(rope["rope_theta"] or family.rope_base)


def _rotated(source: Mapping[str, Any], family: Family, depth: int) -> list[int]:
    """1 for every layer with positions; where no list is given, every n-th layer is without."""
    if not family.unrotated:
        return [1] * depth
    interval = source.get("no_rope_layer_interval", 4)
    return source.get("no_rope_layers") or [int((layer + 1) % interval != 0) for layer in range(depth)]


def _windows(source: Mapping[str, Any], family: Family, depth: int, place: str) -> list[int | None]:
    """The window of every layer: `layer_types` says which have one; before it, those from `max_window_layers` on."""
    if not family.windows or not source.get("use_sliding_window"):
        return [None] * depth
    if source.get("layer_types"):
        windowed = [kind == "sliding_attention" for kind in source["layer_types"]]
    elif "max_window_layers" in source:
        windowed = [layer >= source["max_window_layers"] for layer in range(depth)]
    else:
        raise ArtifactError("which layers have the window is not said", place=place, fix="add layer_types")
    return [source.get("sliding_window") if one else None for one in windowed]


def _period(blocks: Sequence[T]) -> Sequence[T]:
    """The shortest list that gives all layers when it is cycled."""
    return next(
        blocks[:size]
        for size in range(1, len(blocks) + 1)
        if all(block == blocks[layer % size] for layer, block in enumerate(blocks))
    )


def _shared(name: str, values: Sequence[T]) -> T:
    """The one value that all layers have."""
    distinct = list(dict.fromkeys(values))
    if len(distinct) > 1:
        raise ArtifactError(
            f"layers differ in {name} ({', '.join(map(str, distinct))}); config.json has one value for all layers",
            fix="such a model stays in Ingot's own checkpoint format",
        )
    return distinct[0]


def _describe(family: Family) -> str:
    parts = {
        "query and key norms": family.query_key_norm,
        "biases": family.bias,
        "windows": family.windows,
        "layers without positions": family.unrotated,
    }
    return f"{family.model_type} ({', '.join(name for name, has in parts.items() if has) or 'none of these'})"
