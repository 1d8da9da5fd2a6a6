"""A mixture that learns a small task with a router that begins badly unbalanced."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ingot.model.context import Context
from ingot.model.feed_forward.mixture import MixtureOfExperts, MoeConfig, update_biases
from ingot.model.feed_forward.statistics import max_violation
from ingot.model.mixers.mixer import Site
from ingot.model.norm import NormConfig
from ingot.model.record import Record

EXPERTS, ACTIVE, WIDTH, ROWS, LENGTH = 8, 2, 16, 4, 64


def skewed_mixture(balancers: list[dict[str, Any]], score: str = "sigmoid") -> MixtureOfExperts:
    """Tokens have a common direction, and the router likes the experts less and less along it."""
    torch.manual_seed(0)
    config = {
        "kind": "moe",
        "experts": EXPERTS,
        "active": ACTIVE,
        "expert": {"width": 8},
        "router": {"score": score, "selection_bias": True, "renormalise": score == "sigmoid"},
        "balancers": balancers,
    }
    mixture = MixtureOfExperts(MoeConfig.model_validate(config), Site(WIDTH, 0, 1, NormConfig()))
    with torch.no_grad():
        mixture.router.weight[:, 0] += torch.linspace(1.5, -1.5, EXPERTS)
    return mixture


def tokens(rows: int, generator: torch.Generator) -> Tensor:
    x = torch.randn(rows, LENGTH, WIDTH, generator=generator)
    x[..., 0] += 1.5
    return x


def context(x: Tensor, record: Record) -> Context:
    return Context(torch.arange(LENGTH).expand(x.shape[:2]), record=record)


def violation(mixture: MixtureOfExperts) -> float:
    """MaxVio on fresh tokens."""
    x, record = tokens(128, torch.Generator().manual_seed(9)), Record()
    with torch.no_grad():
        mixture(x, context(x, record))
        mixture.report(context(x, record))
    return float(max_violation(record.loads[0]))


def train(mixture: MixtureOfExperts, steps: int = 100, rate: float = 1e-2) -> float:
    """Learn a fixed linear map under the mixture's balancers, two passes in a step; MaxVio at the end."""
    generator = torch.Generator().manual_seed(1)
    target = torch.randn(WIDTH, WIDTH, generator=generator) / 4
    optimizer = torch.optim.Adam(mixture.parameters(), rate)
    for _ in range(steps):
        step = Record()
        for _ in range(2):
            x, record = tokens(ROWS, generator), Record(before=step.loads)
            out = mixture(x, context(x, record))
            mixture.report(context(x, record))
            extra = sum(record.losses.values(), torch.zeros(())) / (2 * ROWS * LENGTH)
            ((out - x @ target).square().mean() / 2 + extra).backward()
            step.add_loads(record)
        optimizer.step()
        optimizer.zero_grad()
        update_biases(mixture, step.loads)
    return violation(mixture)
