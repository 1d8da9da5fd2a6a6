"""The numbers about routers, by hand."""

from __future__ import annotations

import math

import pytest
import torch

from ingot.model.feed_forward.statistics import (
    dead_experts,
    load_shares,
    max_violation,
    mean_entropy,
    router_metrics,
)
from ingot.model.record import RouterLoad


def load(choices: list[int], tokens: int, entropy: float) -> RouterLoad:
    return RouterLoad(torch.tensor(choices), torch.tensor(tokens), torch.tensor(entropy))


UNEVEN = load([6, 0, 2, 0], 4, 4 * 0.5)
EVEN = load([5, 5, 5, 5], 10, 10 * math.log(4))


def test_one_router() -> None:
    assert load_shares(UNEVEN).tolist() == [0.75, 0.0, 0.25, 0.0]
    assert float(max_violation(UNEVEN)) == 2.0 and float(max_violation(EVEN)) == 0.0
    assert int(dead_experts(UNEVEN)) == 2 and int(dead_experts(EVEN)) == 0
    assert float(mean_entropy(UNEVEN)) == 0.5


def test_the_log_has_mean_and_worst_over_the_layers() -> None:
    assert router_metrics({1: UNEVEN, 3: EVEN}) == pytest.approx(
        {
            "router/max_violation": 1.0,
            "router/max_violation_worst": 2.0,
            "router/dead_experts": 1.0,
            "router/dead_experts_worst": 2.0,
            "router/entropy": (0.5 + math.log(4)) / 2,
            "router/entropy_worst": 0.5,
        }
    )


def test_loads_of_passes_add_up() -> None:
    total = UNEVEN + EVEN
    assert total.choices_E.tolist() == [11, 5, 7, 5] and int(total.tokens) == 14
    assert float(mean_entropy(total)) == pytest.approx((2 + 10 * math.log(4)) / 14)
