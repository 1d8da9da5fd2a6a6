"""Losses of preferences and of reward models on bare numbers against their papers' formulas in plain Python; what is logged."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from ingot.train.losses.preference import (
    AnchoredDown,
    AnchoredZero,
    IdentityPreference,
    KahnemanTversky,
    OddsRatio,
    PairTerm,
    Preference,
    SimplePreference,
)
from ingot.train.losses.reward import BradleyTerry, Regression
from ingot.train.losses.terms import Scored
from ingot.workspace.errors import CheckFailed

# Log-probabilities by policy and reference of the tokens of three pairs, out of order; the last pair is a tie.
CHOSEN = {2: [(-0.5, -0.7), (-1.0, -0.2)], 1: [(-0.25, -0.5)], 3: [(-0.75, -0.5), (-0.5, -1.0)]}
REJECTED = {1: [(-0.3, -0.1), (-0.9, -1.4), (-2.0, -0.5)], 3: [(-0.75, -0.5), (-0.5, -1.0)], 2: [(-0.6, -0.9)]}
OUTSIDE = (-3.0, -1.0)  # a token of no answer


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def scored_pairs() -> Scored:
    rows = [(0, 0, *OUTSIDE)]
    for number, tokens in CHOSEN.items():
        rows += [(number, 0, *token) for token in tokens]
    for number, tokens in REJECTED.items():
        rows += [(0, number, *token) for token in tokens]
    chosen, rejected, policy, reference = torch.tensor(rows, dtype=torch.float64).T
    return Scored(policy, {"chosen": chosen, "rejected": rejected, "reference_logprob": reference})


def scores(answers: dict[int, list[tuple[float, float]]], reference: bool, mean: bool) -> list[float]:
    sums = [sum(p - r * reference for p, r in answers[number]) for number in (1, 2, 3)]
    return [value / len(answers[number]) if mean else value for number, value in zip((1, 2, 3), sums, strict=True)]


def odds(logprob: float) -> float:
    return math.log(math.exp(logprob) / (1 - math.exp(logprob)))


FORMULAS: dict[str, tuple[PairTerm, Callable[[float, float], float]]] = {
    "dpo": (Preference(0.3, False), lambda w, x: -math.log(sigmoid(0.3 * (w - x)))),
    "dpo by length": (Preference(2.0), lambda w, x: -math.log(sigmoid(2 * (w - x)))),
    "conservative": (
        Preference(0.3, False, label_smoothing=0.2),
        lambda w, x: -0.8 * math.log(sigmoid(0.3 * (w - x))) - 0.2 * math.log(sigmoid(0.3 * (x - w))),
    ),
    "robust": (
        Preference(0.3, False, label_smoothing=0.2, robust=True),
        lambda w, x: (-0.8 * math.log(sigmoid(0.3 * (w - x))) + 0.2 * math.log(sigmoid(0.3 * (x - w)))) / 0.6,
    ),
    "ipo": (IdentityPreference(0.4), lambda w, x: (w - x - 1 / 0.8) ** 2),
    "apo_zero": (AnchoredZero(0.4), lambda w, x: 1 - sigmoid(0.4 * w) + sigmoid(0.4 * x)),
    "apo_down": (AnchoredDown(0.4), lambda w, x: sigmoid(0.4 * w) + 1 - sigmoid(0.4 * (w - x))),
    "simpo": (SimplePreference(1.7, target_margin=0.6), lambda w, x: -math.log(sigmoid(1.7 * (w - x) - 0.6))),
    "orpo": (OddsRatio(0.4), lambda w, x: -0.4 * math.log(sigmoid(odds(w) - odds(x)))),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_losses_of_pairs(name: str) -> None:
    term, formula = FORMULAS[name]
    reference = name not in ("simpo", "orpo")
    assert ("reference_logprob" in term.needs) is reference and not term.by_token and term.name == "preference"
    chosen, rejected = (scores(answers, reference, term.length_normalised) for answers in (CHOSEN, REJECTED))
    given = scored_pairs()
    total, logged = term.numerator(given)
    assert term.denominator(given.streams) == 3
    assert total.item() == pytest.approx(sum(map(formula, chosen, rejected)))
    assert {name: value.item() for name, value in logged.items()} == pytest.approx(
        {
            "preference_accuracy": sum(
                w - x > 1e-9 for w, x in zip(chosen, rejected, strict=True)
            ),  # a tie is not right
            "margin": term.beta * (sum(chosen) - sum(rejected)),
            "chosen_reward": term.beta * sum(chosen),
            "rejected_reward": term.beta * sum(rejected),
        }
    )


def test_odds_of_a_certain_answer_are_finite() -> None:
    """A log-probability of 0: 1 − p is the smallest number of its type, and no gradient is lost to an infinity."""
    certain = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    value = OddsRatio(1.0).losses(certain[:1], certain[1:] - 1.0)
    assert value.item() == pytest.approx(math.log1p(math.exp(odds(-1.0) - math.log(2**52))), rel=1e-6)
    assert torch.autograd.grad(value, certain)[0].isfinite().all()


def test_kahneman_tversky() -> None:
    """Two good answers and one bad one, each against its reference point; the second good one is at it exactly."""
    policy = torch.tensor([-0.5, -1.0, -0.25, -2.0, -3.0]).double()
    reference = torch.tensor([-0.75, -1.25, -0.75, -1.0, -1.0]).double()
    streams = {
        "chosen": torch.tensor([1.0, 1.0, 2.0, 0.0, 0.0]),
        "rejected": torch.tensor([0.0, 0.0, 0.0, 3.0, 0.0]),
        "reference_logprob": reference,
        "reference_point": torch.tensor([0.25, 0.25, 0.5, 0.125, 7.0]).double(),
    }
    term = KahnemanTversky(2.0, 1.5, 0.5)
    total, logged = term.numerator(Scored(policy, streams))
    margins = [2.0 * (0.5 - 0.25), 2.0 * (0.5 - 0.5), 2.0 * (0.125 + 1.0)]
    weights = [1.5, 1.5, 0.5]
    assert total.item() == pytest.approx(sum(w * (1 - sigmoid(m)) for w, m in zip(weights, margins, strict=True)))
    assert term.denominator(streams) == 3 and not term.by_token
    assert {name: value.item() for name, value in logged.items()} == pytest.approx(
        {"preference_accuracy": 2, "margin": sum(margins), "reference_point": 0.25 + 0.5 + 0.125}
    )


def rewards_of(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_reward_models() -> None:
    """Three pairs whose answers come in different orders, the third a tie; and rated answers beside a token without a rating."""
    streams = {
        "chosen": rewards_of([2, 0, 1, 0, 0, 3, 0]),
        "rejected": rewards_of([0, 1, 0, 3, 2, 0, 0]),
        "margin": rewards_of([0.5, 0.25, 0.25, 0, 0.5, 0, 9]),
    }
    heads = {"reward": rewards_of([1.0, 0.5, 2.0, 0.75, 1.5, 0.75, 9.0])}
    pairs = [(2.0, 0.5, 0.25), (1.0, 1.5, 0.5), (0.75, 0.75, 0.0)]
    term = BradleyTerry(0.1)
    total, logged = term.numerator(Scored(streams["margin"], streams, heads=heads))
    assert total.item() == pytest.approx(sum(-math.log(sigmoid(w - x - m)) + 0.1 * (w + x) ** 2 for w, x, m in pairs))
    assert term.denominator(streams) == 3 and not term.by_token and term.heads == ("reward",)
    assert {name: value.item() for name, value in logged.items()} == {
        "reward_accuracy": 1,  # a tie is not right
        "reward_margin": 1.0,
        "reward_mean": 3.25,
    }
    rated = {"rated": rewards_of([1, 0, 1, 0, 0, 0, 0]), "score": rewards_of([0.5, 7, 3, 7, 7, 7, 7])}
    total, logged = Regression().numerator(Scored(streams["margin"], rated, heads=heads))
    assert (total.item(), logged["absolute_error"].item()) == (0.5**2 + 1.0**2, 1.5)
    assert Regression().denominator(rated) == 2


@pytest.mark.parametrize("term", [Preference(), BradleyTerry()])
def test_a_pair_stays_in_one_micro_batch(term: PairTerm | BradleyTerry) -> None:
    streams = {"chosen": rewards_of([1, 2, 0]), "rejected": rewards_of([0, 0, 1]), "margin": rewards_of([0, 0, 0])}
    with pytest.raises(CheckFailed, match="split over two micro-batches"):
        term.denominator(streams)
