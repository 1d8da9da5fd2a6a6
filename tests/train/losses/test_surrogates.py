"""Surrogates on a grid of ratios and advantages against plain Python; what is beyond a bound; the numbers without options."""

from __future__ import annotations

import math
from dataclasses import fields
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from ingot.train.losses.divergence import TopKDivergence
from ingot.train.losses.gold import GoldDivergence
from ingot.train.losses.off_policy import Importance
from ingot.train.losses.policy_gradient import PolicyGradient, ReferenceDivergence
from ingot.train.losses.preference import (
    AnchoredDown,
    AnchoredZero,
    IdentityPreference,
    KahnemanTversky,
    OddsRatio,
    Preference,
    SimplePreference,
)
from ingot.train.losses.reward import BradleyTerry, Regression
from ingot.train.losses.surrogates import Clip, ClippedWeight, ProbabilityMask, SoftGate, Surrogate
from ingot.train.losses.terms import CrossEntropy, MultiTokenPrediction, UntemperedCrossEntropy, ZLoss
from ingot.train.losses.value_loss import ValueLoss

RATIOS = (0.125, 0.5, 0.75, 0.9, 1.0, 1.25, 1.5, 1.9, 2.5, 8.0)
ADVANTAGES = (-2.0, -0.5, 0.0, 0.5, 2.0)
GRID = list(product(RATIOS, ADVANTAGES))
OLD = 0.1  # π_old of every token of the grid


def at_grid(surrogate: Surrogate) -> tuple[Tensor, Tensor, Tensor]:
    """Objective, what is beyond a bound, and the objective's gradient by log π."""
    logprobs = torch.tensor([math.log(OLD * ratio) for ratio, _ in GRID], dtype=torch.float64, requires_grad=True)
    ratio = (logprobs - math.log(OLD)).exp()
    advantage = torch.tensor([advantage for _, advantage in GRID], dtype=torch.float64)
    objective, beyond = surrogate(ratio, advantage, logprobs)
    (gradient,) = torch.autograd.grad(objective.sum(), logprobs)
    return objective.detach(), beyond, gradient


def pessimistic(ratio: float, advantage: float, low: float, high: float, dual: float | None) -> tuple[float, bool]:
    bounded = min(max(ratio, 1 - low), 1 + high)
    value = min(ratio * advantage, bounded * advantage)
    if dual is not None and advantage < 0:
        value = max(value, dual * advantage)
    return value, value != ratio * advantage  # then it does not depend on the ratio


@pytest.mark.parametrize("dual", [None, 2.0])
def test_a_clip_takes_value_and_gradient_of_what_is_beyond(dual: float | None) -> None:
    objective, beyond, gradient = at_grid(Clip(0.2, 0.3, dual))
    wanted = [pessimistic(*each, 0.2, 0.3, dual) for each in GRID]
    assert objective.tolist() == pytest.approx([value for value, _ in wanted], abs=1e-12)
    assert beyond.tolist() == [is_beyond for _, is_beyond in wanted]
    slopes = [0.0 if is_beyond else r * a for (r, a), (_, is_beyond) in zip(GRID, wanted, strict=True)]
    assert gradient.tolist() == pytest.approx(slopes, abs=1e-12)


def test_at_its_bounds_a_clip_takes_nothing() -> None:
    ratio, advantage = torch.tensor([0.75, 1.25, 2.0]).double(), torch.tensor([-1.0, 1.0, -1.0]).double()
    objective, beyond = Clip(0.25, 0.25, dual=2.0)(ratio, advantage, ratio.log())
    assert objective.tolist() == [-0.75, 1.25, -2.0] and not beyond.any()


@pytest.mark.parametrize(("low", "high"), [(None, 2.0), (0.5, 1.9)])
def test_a_clipped_weight_leaves_every_token_its_gradient(low: float | None, high: float) -> None:
    objective, beyond, gradient = at_grid(ClippedWeight(low, high))
    weights = [min(max(ratio, low or 0.0), high) for ratio, _ in GRID]
    scores = [weight * advantage for weight, (_, advantage) in zip(weights, GRID, strict=True)]
    values = [one * math.log(OLD * ratio) for one, (ratio, _) in zip(scores, GRID, strict=True)]
    assert objective.tolist() == pytest.approx(values) and gradient.tolist() == pytest.approx(scores)
    changed = [abs(weight - ratio) > 1e-12 for weight, (ratio, _) in zip(weights, GRID, strict=True)]
    inside = [low is None or ratio not in (low, high) for ratio, _ in GRID]  # rounding decides at the bound itself
    assert [b for b, known in zip(beyond.tolist(), inside, strict=True) if known] == [
        b for b, known in zip(changed, inside, strict=True) if known
    ]


def test_a_soft_gate_is_a_sigmoid_of_the_ratio() -> None:
    objective, beyond, gradient = at_grid(SoftGate(1.5, 2.5))
    for (ratio, advantage), value, slope in zip(GRID, objective.tolist(), gradient.tolist(), strict=True):
        tau = 1.5 if advantage > 0 else 2.5
        gate = 1 / (1 + math.exp(-tau * (ratio - 1)))
        assert value == pytest.approx(4 / tau * gate * advantage, abs=1e-12)
        assert slope == pytest.approx(4 * gate * (1 - gate) * advantage * ratio, abs=1e-12)  # r A at r = 1
    assert not beyond.any()


def test_a_mask_by_probabilities_begins_beyond_its_bound() -> None:
    """π = 0.75 against 0.5, and the other way round: moved by exactly 0.25. Without an advantage nothing is masked."""
    now, old = torch.tensor([0.75, 0.5, 0.75, 0.5, 0.75]).double(), torch.tensor([0.5, 0.75, 0.5, 0.75, 0.5]).double()
    advantage = torch.tensor([0.5, -0.5, 0.0, 0.0, -0.5]).double()
    for bound, masked in ((0.25, [False] * 5), (0.2, [True, True, False, False, False])):
        objective, beyond = ProbabilityMask(bound, weight=0.5)(now / old, advantage, now.log())
        assert beyond.tolist() == masked
        kept = torch.tensor([0.0 if mask else 1.0 for mask in masked]).double()
        torch.testing.assert_close(objective, kept * now / old * advantage - 0.5 * (now / old).log() ** 2)


@pytest.mark.parametrize("surrogate", [Clip(), Clip(dual=3.0), ClippedWeight(), SoftGate(), ProbabilityMask()])
def test_which_surrogates_are_proportional_to_the_advantage(surrogate: Surrogate) -> None:
    """Only of those may tokens with A = 0 be left out of a step."""
    ratio = torch.tensor([ratio for ratio, _ in GRID]).double()
    advantage = torch.tensor([advantage for _, advantage in GRID]).double()
    one, three = (surrogate(ratio, scale * advantage, (ratio * OLD).log())[0] for scale in (1.0, 3.0))
    assert surrogate.proportional is torch.allclose(3 * one, three)


PUBLISHED: list[tuple[Any, dict[str, Any]]] = [
    (Clip(), {"low": 0.2, "high": 0.28, "dual": None}),  # DAPO
    (ClippedWeight(), {"low": None, "high": 5.0}),  # MiniMax-M1 in TRL
    (SoftGate(), {"positive": 1.0, "negative": 1.05}),  # SAPO
    (ProbabilityMask(), {"bound": 0.2, "weight": 1e-3}),  # prime-rl
    (Importance(), {"level": "token", "mode": "truncate", "low": None, "high": 2.0, "limit": 20.0}),  # OLMo 3, verl
    (ZLoss(), {"coefficient": 1e-5}),  # OLMo 2
    (MultiTokenPrediction(), {"coefficient": 0.3}),  # DeepSeek-V3, first 10T tokens
    (ValueLoss(), {"coefficient": 0.5, "clip": 0.2}),  # PPO
    (ReferenceDivergence(), {"coefficient": 0.0, "limit": 20.0}),
    (PolicyGradient(), {"coefficient": 1.0, "limit": 20.0, "level": "token", "old": "sampled_logprob"}),
    (
        Preference(),
        {"coefficient": 1.0, "beta": 5.0, "length_normalised": True, "label_smoothing": 0.0, "robust": False},
    ),
    (IdentityPreference(), {"coefficient": 1.0, "beta": 0.1, "length_normalised": True}),
    (AnchoredZero(), {"coefficient": 1.0, "beta": 0.1, "length_normalised": False}),
    (AnchoredDown(), {"coefficient": 1.0, "beta": 0.1, "length_normalised": False}),
    (SimplePreference(), {"coefficient": 1.0, "beta": 2.0, "length_normalised": True, "target_margin": 1.0}),
    (OddsRatio(), {"coefficient": 1.0, "beta": 0.1, "length_normalised": True}),
    (KahnemanTversky(), {"coefficient": 1.0, "beta": 0.1, "desirable_weight": 1.0, "undesirable_weight": 1.0}),
    (BradleyTerry(), {"coefficient": 1.0, "centring": 0.0}),
    (Regression(), {"coefficient": 1.0}),
    (CrossEntropy(), {"coefficient": 1.0}),
    (UntemperedCrossEntropy(), {"coefficient": 1.0}),
    (TopKDivergence(), {"coefficient": 1.0, "beta": 1.0, "tail": True}),
    (GoldDivergence(), {"coefficient": 1.0, "beta": 1.0, "matched_weight": None}),
]


@pytest.mark.parametrize(("part", "numbers"), PUBLISHED, ids=lambda value: type(value).__name__)
def test_what_an_algorithm_of_ones_own_gets_without_options(part: Any, numbers: dict[str, Any]) -> None:
    assert {name: getattr(part, name) for name in numbers} == numbers
    numeric = {each.name for each in fields(part) if isinstance(getattr(part, each.name), bool | float)}
    assert numeric - {"by_token"} <= numbers.keys(), "every number stands above"
