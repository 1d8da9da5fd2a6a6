"""Mixtures of experts as most families write them: a router, one tensor per expert and projection, a shared expert."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ingot.model.config import ModelConfig
from ingot.model.families.common import ACTIVATIONS, blocks_of, experts_layout, feed_forward_layout, first, need
from ingot.model.families.family import Layout, place
from ingot.model.feed_forward.config import FeedForwardConfig, MoeConfig

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
    layout = {f"{theirs}{router}.weight": place(f"{ours}router.weight")}
    if mixture.router.selection_bias:
        layout[f"{theirs}{selection}"] = place(f"{ours}router.selection_bias")
    layout |= experts_layout(f"{ours}experts.", f"{theirs}experts.", mixture.experts, mixture.expert, names)
    if mixture.shared is not None:
        layout |= feed_forward_layout(f"{ours}shared.", f"{theirs}{shared}.", mixture.shared)
    if mixture.shared_gate:
        layout[f"{theirs}{shared}_gate.weight"] = place(f"{ours}shared_gate.weight")
    return layout


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
