"""Keys of config.json for mixtures of experts, as most families write them."""

from __future__ import annotations

from typing import Any

from ingot.checkpoints.families.common import ACTIVATIONS, blocks_of, first, need, read_activation
from ingot.checkpoints.families.keys import Keys, Values
from ingot.model.config import ModelConfig
from ingot.model.feed_forward.dense import FeedForwardConfig
from ingot.model.feed_forward.mixture import MoeConfig

COUNTS = ("num_experts", "num_local_experts", "n_routed_experts")
"""Keys for the number of experts; transformers takes some of them as synonyms."""
V3_EPSILON = 1e-20  # added to the sum of the chosen scores by the code that follows DeepSeek-V3


def read_mixture(
    keys: Keys,
    *,
    experts: int,
    active: int,
    width: int,
    key: str = "moe_intermediate_size",
    activation: str | None = None,
    **values: Any,
) -> Values:
    """A mixture; the numbers are the class defaults, `key` has the width of an expert, `values` are further fields.

    `activation` is ours, where it is not that of the key `hidden_act`.
    """
    counts = {keys.get(name, experts) for name in COUNTS if keys.has(name)}
    if len(counts) > 1:
        keys.refuse(f"several numbers of experts: {', '.join(name for name in COUNTS if keys.has(name))}")
    return {
        "kind": "moe",
        "experts": counts.pop() if counts else experts,
        "active": keys.get("num_experts_per_tok", active),
        "expert": {"width": keys.get(key, width), "activation": activation or read_activation(keys)},
        **values,
    }


def with_shared(mixture: Values, width: int, **values: Any) -> Values:
    """The mixture with a shared expert of this width, like its routed experts in everything else."""
    return {**mixture, "shared": {**mixture["expert"], "width": width}, **values}


def read_v3_router(keys: Keys, *, groups: int = 1, kept: int = 1, scaling: float = 2.5) -> Values:
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


def read_v3_mixture(keys: Keys, *, experts: int = 256, width: int = 2048, **router: Any) -> Values:
    """DeepSeek-V3's mixture, with one wide shared expert; the numbers are the class defaults."""
    mixture = read_mixture(keys, experts=experts, active=8, width=width, router=read_v3_router(keys, **router))
    return with_shared(mixture, mixture["expert"]["width"] * keys.get("n_shared_experts", 1))


def write_v3_router(mixture: MoeConfig) -> Values:
    """The experts and their router in config.json."""
    return {
        "n_routed_experts": mixture.experts,
        "n_group": mixture.router.groups,
        "topk_group": mixture.router.kept_groups,
        "norm_topk_prob": mixture.router.renormalise,
        "routed_scaling_factor": mixture.router.scaling,
    }


def write_v3_mixture(mixture: MoeConfig) -> Values:
    """The same with the shared expert, whose width is a multiple of a routed one's."""
    return {**write_v3_router(mixture), "n_shared_experts": shared_experts(mixture)}


def shared_experts(mixture: MoeConfig) -> int:
    """How many routed experts the shared one is as wide as."""
    return mixture.shared.width // mixture.expert.width if mixture.shared else 0


def write_mixture(config: ModelConfig) -> Values:
    """Keys that nearly all families with mixtures share; without a dense layer its width is of no consequence."""
    mixture, dense = need(config, MoeConfig), first(config, FeedForwardConfig)
    return {
        "intermediate_size": mixture.expert.width if dense is None else dense.width,
        "moe_intermediate_size": mixture.expert.width,
        "num_experts_per_tok": mixture.active,
        "hidden_act": ACTIVATIONS.get(mixture.expert.activation),
    }


def write_every_mixture(config: ModelConfig, count: str) -> Values:
    """The same for a family whose layers are all mixtures; `count` is the key for the number of experts."""
    values = {**write_mixture(config), count: need(config, MoeConfig).experts}
    del values["moe_intermediate_size"]  # intermediate_size is the width of an expert
    return values


def sparse_layers(config: ModelConfig) -> list[bool]:
    """Which layers are mixtures."""
    return [isinstance(block.feed_forward, MoeConfig) for block in blocks_of(config)]


def dense_layers(config: ModelConfig) -> list[int]:
    """The numbers of the layers that are not."""
    return [layer for layer, sparse in enumerate(sparse_layers(config)) if not sparse]
