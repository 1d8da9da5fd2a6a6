"""Reads and writes rotary positions in config.json: `rope_parameters` (transformers 5), or `rope_theta` and `rope_scaling`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ingot.checkpoints.families.keys import Keys
from ingot.model.positions.config import RopeConfig
from ingot.model.positions.scaling import (
    SCALINGS,
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    ScalingConfig,
    YarnScaling,
)
from ingot.workspace.errors import ArtifactError


def read_rope(
    keys: Keys,
    *,
    base: float = 10_000.0,
    share: float = 1.0,
    pairing: str = "halves",
    context: int = 2048,
    original: int | None = None,
    layer_type: str | None = None,
) -> RopeConfig:
    """The rotation that config.json describes; `base`, `share`, `context` and `original` where it says nothing.

    `layer_type` picks the entry of a `rope_parameters` that is keyed by layer type. Before there was such a thing, all
    layer types had one base, and only full attention was scaled.
    """
    theta, scaling = keys.raw("rope_theta"), keys.raw("rope_scaling") or {}
    parameters = keys.raw("rope_parameters") or {}
    if layer_type is not None:
        outer = {name: value for name, value in parameters.items() if not isinstance(value, Mapping | None)}
        if set(outer) - {"truncate"}:
            keys.refuse(f"rope_parameters that are not keyed by layer type: {outer}")
        parameters = outer | (parameters.get(layer_type) or {})
        scaling = scaling if layer_type == "full_attention" else {}
    values: dict[str, Any] = {"rope_theta": theta}
    values |= {name: value for name, value in {**scaling, **parameters}.items() if value is not None}
    outside = keys.raw("partial_rotary_factor")
    share = values.pop("partial_rotary_factor", None) or outside or share
    kind = values.pop("rope_type", None) or values.get("type") or "default"
    values.pop("type", None)
    theta = values.pop("rope_theta") or base
    context = keys.get("max_position_embeddings", context)
    original = keys.get("original_max_position_embeddings", original)
    stretched = _read_scaling(keys, kind, values, context, original)
    leftover = {name: value for name, value in values.items() if value is not None}
    if leftover:
        keys.refuse(f"rope parameters that Ingot does not understand: {leftover}")
    return RopeConfig.model_validate({"base": theta, "pairing": pairing, "share": share, "scaling": stretched})


def _read_scaling(
    keys: Keys, kind: str, values: dict[str, Any], context: int, original: int | None
) -> ScalingConfig | None:
    """Takes what it understands out of `values`. The `original` length outside of them counts more than theirs."""

    def take(name: str, default: Any = None) -> Any:
        value = values.pop(name, None)
        return default if value is None else value

    if kind == "default":
        take("truncate")
        return None
    if kind == "linear":
        take("truncate")
        return LinearScaling(factor=take("factor"))
    inner = take("original_max_position_embeddings")
    length = original or inner or context
    if kind == "llama3":
        low, high = take("low_freq_factor"), take("high_freq_factor")
        return Llama3Scaling(factor=take("factor"), low=low, high=high, original_context=length)
    if kind in ("longrope", "su") or (kind == "yarn" and "short_factor" in values):  # Phi-3 wrote all three names
        return LongRopeScaling(
            short_factors=take("short_factor"),
            long_factors=take("long_factor"),
            original_context=length,
            context=round(take("factor", context / length) * length),
            attention_factor=take("attention_factor"),
        )
    if kind == "yarn":
        return YarnScaling(
            factor=take("factor") or context / length,
            original_context=length,
            beta_fast=take("beta_fast", 32.0),
            beta_slow=take("beta_slow", 1.0),
            truncate=take("truncate", True),
            attention_factor=take("attention_factor"),
            mscale=take("mscale"),
            mscale_all_dim=take("mscale_all_dim"),
        )
    keys.refuse(f"rope_type {kind!r}")


def write_rope(rope: RopeConfig | None, *, partial: bool = False) -> dict[str, Any]:
    """`rope_parameters` as transformers 5 has them; `partial` adds the rotated share."""
    rope = rope or RopeConfig()
    values: dict[str, Any] = {"rope_type": "default", "rope_theta": rope.base}
    if partial or rope.share != 1.0:
        values["partial_rotary_factor"] = rope.share
    scaling = rope.scaling
    if scaling is None:
        return values
    values["rope_type"] = scaling.kind
    if type(scaling) not in SCALINGS.classes.values():
        raise ArtifactError(f"no Hugging Face model type has the position scaling {scaling.kind}")
    if isinstance(scaling, LongRopeScaling):
        factor = scaling.context / scaling.original_context
        values |= {"short_factor": list(scaling.short_factors), "long_factor": list(scaling.long_factors)}
        values |= {"original_max_position_embeddings": scaling.original_context, "factor": factor}
        values |= {"attention_factor": scaling.attention_factor}
    elif isinstance(scaling, Llama3Scaling):
        values |= {"factor": scaling.factor, "low_freq_factor": scaling.low, "high_freq_factor": scaling.high}
        values |= {"original_max_position_embeddings": scaling.original_context}
    elif isinstance(scaling, YarnScaling):
        fields = scaling.model_dump(exclude={"kind", "original_context"})
        values |= fields | {"original_max_position_embeddings": scaling.original_context}
    elif isinstance(scaling, LinearScaling):
        values["factor"] = scaling.factor
    return {name: value for name, value in values.items() if value is not None}


def write_rope_keys(rope: RopeConfig | None, *, partial: bool = False) -> dict[str, Any]:
    """The rotation in the spelling of transformers 5 and, for older versions and other programs, in the one before.

    `partial`: the rotated share is written even if it is 1, because the class has another default.
    """
    parameters = write_rope(rope, partial=partial)
    before = {"rope_theta": parameters["rope_theta"]}
    if "partial_rotary_factor" in parameters:
        before["partial_rotary_factor"] = parameters["partial_rotary_factor"]
    if rope is not None and rope.scaling is not None:
        before["rope_scaling"] = {name: value for name, value in parameters.items() if name not in before}
    return {**before, "rope_parameters": parameters}


def write_ropes_by_type(full: RopeConfig | None, sliding: RopeConfig | None) -> dict[str, Any]:
    """The same where full attention and windows rotate differently: `rope_parameters` are keyed by layer type."""
    full, sliding = full or sliding, sliding or full
    keys = write_rope_keys(full)
    parameters: dict[str, Any] = {"full_attention": write_rope(full), "sliding_attention": write_rope(sliding)}
    if full is not None and isinstance(full.scaling, YarnScaling) and not full.scaling.truncate:
        parameters["truncate"] = False  # transformers looks for it here only
    return {**keys, "rope_parameters": parameters}
