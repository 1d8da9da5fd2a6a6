"""Measures how well a router spreads its tokens over the experts, from the loads of a step (record.py).

share_i  = n_i / Σ n              MaxVio  = max_i n_i / n̄ − 1      0 is balance, E/K − 1 the worst (arXiv 2408.15664)
dead     = #{i: n_i = 0}          entropy = mean over tokens of −Σ_i s̃_i ln s̃_i, at most ln E
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ingot.model.record import RouterLoad


def load_shares(load: RouterLoad) -> Tensor:
    """Each expert's share of the choices [E]."""
    return load.choices_E / load.choices_E.sum().clamp(min=1)


def max_violation(load: RouterLoad) -> Tensor:
    """By how much the busiest expert is above the mean, relative to the mean."""
    return load_shares(load).max() * len(load.choices_E) - 1


def dead_experts(load: RouterLoad) -> Tensor:
    """How many experts no token chose."""
    return (load.choices_E == 0).sum()


def mean_entropy(load: RouterLoad) -> Tensor:
    """Mean entropy of the tokens' scores, in nats."""
    return load.entropy / load.tokens.clamp(min=1)


def router_metrics(loads: Mapping[int, RouterLoad]) -> dict[str, Tensor]:
    """Mean and worst over the layers, for the log; they stay on the device."""
    each = [(max_violation(load), dead_experts(load), mean_entropy(load)) for load in loads.values()]
    table = torch.stack([torch.stack([value.float() for value in row]) for row in each])  # [layers, 3]
    worst = torch.stack([table[:, 0].max(), table[:, 1].max(), table[:, 2].min()])
    names = ("max_violation", "dead_experts", "entropy")
    means, extremes = table.mean(0), worst
    named = zip(names, means, extremes, strict=True)
    return {
        f"router/{name}{end}": value for name, *pair in named for end, value in zip(("", "_worst"), pair, strict=True)
    }
