"""Every balancer against its formula written out in Python, transformers' balance loss, and a router that begins unbalanced."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from pydantic import TypeAdapter
from torch import Tensor
from transformers.models.qwen3_moe.modeling_qwen3_moe import load_balancing_loss_func

from ingot.model.feed_forward.balance import BIN_WIDTH, AnyBalancer, Balancer, QuantileBalancer, Seen
from ingot.model.feed_forward.mixture import MoeConfig, count_choices
from ingot.model.feed_forward.router import Router
from ingot.model.record import RouterLoad
from tests.model.feed_forward.simulation import skewed_mixture, train, violation

EXPERTS, ACTIVE, WIDTH = 6, 2, 5


def moe(score: str = "softmax") -> MoeConfig:
    return MoeConfig.model_validate(
        {
            "kind": "moe",
            "experts": EXPERTS,
            "active": ACTIVE,
            "expert": {"width": 4},
            "router": {"score": score, "selection_bias": True},
        }
    )


def balancer(score: str = "softmax", **options: Any) -> Balancer:
    config: AnyBalancer = TypeAdapter(AnyBalancer).validate_python(options)
    return config.build(EXPERTS, ACTIVE, score)


def see(x: Tensor, score: str, lengths: list[int], real: Tensor | None = None, before: Tensor | None = None) -> Seen:
    """A pass of a random router over sequences of these lengths."""
    torch.manual_seed(0)
    router = Router(moe(score).router, EXPERTS, ACTIVE, WIDTH).double()
    real = torch.ones(len(x), dtype=torch.bool) if real is None else real
    routing = router(x)
    sequences = torch.arange(len(lengths)).repeat_interleave(torch.tensor(lengths))
    choices = count_choices(routing.indices_NK, real, EXPERTS)
    return Seen(routing, router.distribution(routing), real, sequences, choices, before)


def random_tokens(count: int, seed: int = 1) -> Tensor:
    return torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(seed)).double()


def balance_loss(shares: Tensor, indices: Tensor, members: list[int], counted: list[int]) -> Tensor:
    """Σ_i f_i P_i of the tokens `members`, with f counted over the tokens `counted`."""
    total = torch.zeros((), dtype=shares.dtype)
    for expert in range(EXPERTS):
        chosen = sum(expert in indices[token].tolist() for token in counted)
        f = EXPERTS / (ACTIVE * len(counted)) * chosen
        total = total + f * torch.stack([shares[token, expert] for token in members]).mean()
    return total


@pytest.mark.parametrize("score", ["softmax", "sigmoid", "top_k_softmax"])
def test_balance_loss_by_hand(score: str) -> None:
    """For every scope: a sum over tokens, so T times the loss of T tokens; also its gradient, which f has no part in."""
    lengths, alpha = [7, 3, 10], 0.3
    x = random_tokens(20).requires_grad_()
    seen = see(x, score, lengths)
    bounds = [range(0, 7), range(7, 10), range(10, 20)]
    for scope in ("sequence", "micro_batch", "global"):
        found = balancer(score, kind="loss", coefficient=alpha, scope=scope).loss(seen)
        pieces = bounds if scope == "sequence" else [range(20)]
        parts = [
            len(piece) * balance_loss(seen.shares_NE, seen.routing.indices_NK, list(piece), list(piece))
            for piece in pieces
        ]
        expected = alpha * torch.stack(parts).sum()
        assert found is not None
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
        gradients = [torch.autograd.grad(loss, x, retain_graph=True)[0] for loss in (found, expected)]
        assert gradients[1].abs().max() > 1e-4
        torch.testing.assert_close(*gradients, rtol=1e-10, atol=1e-14)


def test_the_global_scope_counts_the_earlier_passes() -> None:
    x = random_tokens(30)
    whole = see(x, "softmax", [30])
    first = see(x[:12], "softmax", [12])
    second = see(x[12:], "softmax", [18], before=first.choices_E)
    found = balancer(kind="loss", coefficient=1.0, scope="global").loss(second)
    members = list(range(12, 30))
    expected = 18 * balance_loss(whole.shares_NE, whole.routing.indices_NK, members, list(range(30)))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("scope", ["sequence", "micro_batch", "global"])
def test_balance_gives_the_coefficient_exactly(scope: str) -> None:
    """Whatever the scores are, if every expert is chosen equally often."""
    seen = see(random_tokens(6), "softmax", [3, 3])
    turns = torch.tensor([[0, 1], [2, 3], [4, 5], [1, 2], [3, 4], [5, 0]])
    even = Seen(
        type(seen.routing)(seen.routing.weights_NK, turns, seen.routing.scores_NE, seen.routing.logits_NE),
        seen.shares_NE,
        seen.real_N,
        seen.sequences_N,
        torch.full((EXPERTS,), 2),
        None,
    )
    found = balancer(kind="loss", coefficient=0.01, scope=scope).loss(even)
    assert found is not None
    assert found.item() / 6 == pytest.approx(0.01, rel=1e-12)


def test_transformers_balance_loss_is_k_times_ours() -> None:
    """It counts all K choices without dividing by K; layers are concatenated, so equal layers give the loss of one."""
    seen = see(random_tokens(40), "softmax", [40])
    mask = torch.ones(4, 10)
    mask[1, 6:] = mask[3, 2:] = 0
    masked = see(random_tokens(40), "softmax", [40], real=mask.flatten().bool())
    switch = balancer(kind="loss", coefficient=1.0, scope="micro_batch")
    for given, tokens, attention in ((seen, 40, None), (masked, 28, mask)):
        mine = switch.loss(given)
        assert mine is not None
        for layers in (1, 2):
            logits = (given.routing.logits_NE,) * layers
            theirs = load_balancing_loss_func(logits, EXPERTS, ACTIVE, attention)
            assert mine.item() / tokens * ACTIVE == pytest.approx(torch.as_tensor(theirs).item(), rel=1e-5)


def test_z_loss_by_hand() -> None:
    real = torch.tensor([True, True, False, True])
    x = random_tokens(4).requires_grad_()
    seen = see(x, "sigmoid", [4], real)
    found = balancer(kind="z_loss", coefficient=0.5).loss(seen)
    expected = sum(
        0.5 * math.log(sum(math.exp(z) for z in logits)) ** 2
        for logits, counts in zip(seen.routing.logits_NE.tolist(), real.tolist(), strict=True)
        if counts
    )
    assert found is not None and found.item() == pytest.approx(expected, rel=1e-12)
    found.backward()
    assert x.grad is not None and torch.equal(x.grad[2], torch.zeros(WIDTH).double()) and x.grad[3].abs().max() > 0


LOADS = [10, 0, 25, 15, 40, 0]  # mean 15


def load(choices: list[int], histogram: Tensor | None = None) -> RouterLoad:
    return RouterLoad(torch.tensor(choices), torch.tensor(sum(choices) // ACTIVE), torch.zeros(()), histogram)


def test_bias_update_by_hand() -> None:
    start = torch.tensor([0.5, 0.0, -0.25, 0.125, 0.0, 0.0])
    for recentre in (False, True):
        bias = start.clone()
        balancer(kind="bias", rate=0.01, recentre=recentre).update(bias, load(LOADS))
        expected = [0.51, 0.01, -0.26, 0.125, -0.01, 0.01]
        shift = sum(expected) / 6 if recentre else 0
        assert bias.tolist() == pytest.approx([value - shift for value in expected], abs=1e-7)


def test_smebu_by_hand_over_two_steps() -> None:
    """The second step goes on with the momentum of the first."""
    bias, smebu = torch.zeros(EXPERTS), balancer(kind="smebu", rate=0.02, momentum=0.7, sharpness=2.0)
    momentum, expected = [0.0] * EXPERTS, [0.0] * EXPERTS
    for choices in (LOADS, [15, 15, 0, 30, 15, 15]):
        smebu.update(bias, load(choices))
        mean = sum(choices) / EXPERTS
        steps = [0.02 * math.tanh(2.0 * (mean - n) / mean) for n in choices]
        centred = [step - sum(steps) / EXPERTS for step in steps]
        momentum = [0.7 * m + 0.3 * step for m, step in zip(momentum, centred, strict=True)]
        expected = [b + m for b, m in zip(expected, momentum, strict=True)]
        assert bias.tolist() == pytest.approx(expected, abs=1e-8)
    before = bias.clone()
    smebu.update(bias, load([0] * EXPERTS))
    assert torch.isfinite(bias).all() and not torch.equal(before, bias), (
        "a step without tokens only follows the momentum"
    )


@pytest.mark.parametrize("score", ["softmax", "sigmoid", "top_k_softmax", "sigmoid_input"])
def test_quantile_update_by_hand(score: str) -> None:
    """Quantiles of all scores of a step, from histograms of its passes, to one bin; padding left out."""
    x = 2 * random_tokens(4000) + 1
    real = torch.rand(4000, generator=torch.Generator().manual_seed(2)) < 0.8
    quantile = balancer(score, kind="quantile", rate=0.25)
    assert isinstance(quantile, QuantileBalancer)
    cuts = [slice(0, 700), slice(700, 4000)]
    passes = [see(x[cut], score, [len(x[cut])], real[cut]) for cut in cuts]
    histogram = torch.stack([quantile.observe(seen) for seen in passes]).sum(0)
    assert torch.equal(histogram, quantile.observe(see(x, score, [4000], real))), "passes add up exactly"
    bias = torch.linspace(-0.2, 0.2, EXPERTS)
    expected = bias.clone()
    quantile.update(bias, load(LOADS, histogram))
    scores = see(x, score, [4000]).routing.scores_NE[real]
    exact = scores.quantile(1 - ACTIVE / EXPERTS, dim=0).float()
    expected = 0.75 * expected + 0.25 * (exact.mean() - exact)
    slope = {"softmax": 1.0, "sigmoid": 0.25}.get(score, 1.0)  # largest |dscore / dcoordinate|
    assert exact.std() > 0.02, "the experts differ by much more than a bin"
    torch.testing.assert_close(bias, expected, rtol=0, atol=0.25 * slope * BIN_WIDTH)


MOVERS: list[dict[str, Any]] = [
    {"kind": "bias", "rate": 0.01, "recentre": True},
    {"kind": "smebu", "rate": 0.02},
    {"kind": "quantile", "rate": 0.1},
]
LOSSES: list[dict[str, Any]] = [
    {"kind": "loss", "coefficient": 1.0, "scope": scope} for scope in ("sequence", "micro_batch", "global")
]


@pytest.mark.parametrize(
    ("score", "given"),
    [
        *(("sigmoid", each) for each in MOVERS),
        ("softmax", LOSSES[0]),
        pytest.param("sigmoid", {"kind": "bias", "rate": 0.01}, marks=pytest.mark.slow),
        *(pytest.param("softmax", each, marks=pytest.mark.slow) for each in LOSSES[1:]),
    ],
)
def test_a_balancer_brings_a_skewed_router_to_balance(score: str, given: dict[str, Any]) -> None:
    mixture = skewed_mixture([given], score)
    assert violation(mixture) > 2
    assert train(mixture) < 0.2


@pytest.mark.parametrize("score", ["sigmoid", "softmax"])
def test_without_a_balancer_it_stays_unbalanced(score: str) -> None:
    assert train(skewed_mixture([], score)) > 1.5
