"""Mixtures of experts as most families write them: a router, one tensor per expert and projection, a shared expert."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.checkpoints.families.common import (
    ACTIVATIONS,
    attention_layout,
    blocks_of,
    experts_layout,
    feed_forward_layout,
    first,
    need,
    norm_layout,
    read_activation,
)
from ingot.checkpoints.families.family import Layout, maps_to
from ingot.checkpoints.families.keys import Keys
from ingot.model.config import BlockConfig, ModelConfig
from ingot.model.feed_forward.dense import FeedForwardConfig
from ingot.model.feed_forward.mixture import MoeConfig
from ingot.model.mixers.attention import AttentionConfig

V3_EPSILON = 1e-20  # added to the sum of the chosen scores by the code that follows DeepSeek-V3


def mixture_layout(
    ours: str,
    theirs: str,
    mixture: MoeConfig,
    *,
    router: str = "gate",
    selection: str = "gate.e_score_correction_bias",
    shared: str = "shared_experts",
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
) -> Layout:
    """Router, selection bias, experts one by one, shared expert and its gate; the arguments are their names."""
    layout = {f"{theirs}{router}.weight": maps_to(f"{ours}router.weight")}
    if mixture.router.selection_bias:
        layout[f"{theirs}{selection}"] = maps_to(f"{ours}router.selection_bias")
    layout |= experts_layout(f"{ours}experts.", f"{theirs}experts.", mixture.experts, mixture.expert, names)
    if mixture.shared is not None:
        layout |= feed_forward_layout(f"{ours}shared.", f"{theirs}{shared}.", mixture.shared)
    if mixture.shared_gate:
        layout[f"{theirs}{shared}_gate.weight"] = maps_to(f"{ours}shared_gate.weight")
    return layout


def block_layout(ours: str, theirs: str, block: BlockConfig, *, shared: str = "shared_experts") -> Layout:
    """The names of Llama, with a mixture instead of some feed-forwards."""
    assert isinstance(block.mixer, AttentionConfig) and block.feed_forward is not None
    layout = norm_layout(ours, theirs, mixer_norm="input_layernorm", feed_forward_norm="post_attention_layernorm")
    layout |= attention_layout(f"{ours}mixer.", f"{theirs}self_attn.", block.mixer)
    ours, theirs = f"{ours}feed_forward.", f"{theirs}mlp."
    if isinstance(block.feed_forward, MoeConfig):
        return layout | mixture_layout(ours, theirs, block.feed_forward, shared=shared)
    return layout | feed_forward_layout(ours, theirs, block.feed_forward)


def read_v3_router(keys: Keys, *, groups: int = 1, kept: int = 1, scaling: float = 2.5) -> dict[str, Any]:
    """DeepSeek-V3's router: sigmoid scores, a selection bias, groups; the numbers are the class defaults."""
    renormalise = keys.get("norm_topk_prob", True)
    return {
        "score": "sigmoid",
        "selection_bias": True,
        "groups": keys.get("n_group", groups),
        "kept_groups": keys.get("topk_group", kept),
        "renormalise": renormalise,
        "renormalise_epsilon": V3_EPSILON if renormalise else 0.0,
        "scaling": keys.get("routed_scaling_factor", scaling),
        "float32": True,
    }


def read_v3_mixture(keys: Keys, *, experts: int = 256, width: int = 2048, **router: Any) -> dict[str, Any]:
    """DeepSeek-V3's mixture, with one wide shared expert; the numbers are the class defaults."""
    width, activation = keys.get("moe_intermediate_size", width), read_activation(keys)
    return {
        "kind": "moe",
        "experts": keys.get("n_routed_experts", keys.get("num_local_experts", experts)),
        "active": keys.get("num_experts_per_tok", 8),
        "expert": {"width": width, "activation": activation},
        "shared": {"width": width * keys.get("n_shared_experts", 1), "activation": activation},
        "router": read_v3_router(keys, **router),
    }


def write_v3_router(mixture: MoeConfig) -> dict[str, Any]:
    """The experts and their router in config.json."""
    return {
        "n_routed_experts": mixture.experts,
        "n_group": mixture.router.groups,
        "topk_group": mixture.router.kept_groups,
        "norm_topk_prob": mixture.router.renormalise,
        "routed_scaling_factor": mixture.router.scaling,
    }


def write_v3_mixture(mixture: MoeConfig) -> dict[str, Any]:
    """The same with the shared expert, whose width is a multiple of a routed one's."""
    shared = mixture.shared.width // mixture.expert.width if mixture.shared else 0
    return {**write_v3_router(mixture), "n_shared_experts": shared}


def write_mixture(config: ModelConfig) -> dict[str, Any]:
    """Keys that nearly all families with mixtures share; without a dense layer its width is of no consequence."""
    mixture, dense = need(config, MoeConfig), first(config, FeedForwardConfig)
    return {
        "intermediate_size": mixture.expert.width if dense is None else dense.width,
        "moe_intermediate_size": mixture.expert.width,
        "num_experts_per_tok": mixture.active,
        "hidden_act": ACTIVATIONS.get(mixture.expert.activation),
    }


def sparse_layers(config: ModelConfig) -> Sequence[bool]:
    """Which layers are mixtures."""
    return [isinstance(block.feed_forward, MoeConfig) for block in blocks_of(config)]
