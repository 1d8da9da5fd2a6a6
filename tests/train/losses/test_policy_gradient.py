"""Off-policy corrections, estimates of the divergence and aggregations, against numbers by hand and exact expectations."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import scipy.stats
import torch
from torch import Tensor

from ingot.train.losses.off_policy import Correction, Importance, Level, Probabilities, SequenceMask
from ingot.train.losses.policy_gradient import RATIOS, Aggregation, Estimator, PolicyGradient, ReferenceDivergence
from ingot.train.losses.surrogates import Clip, ClippedWeight, ProbabilityMask
from ingot.train.losses.terms import LossTerm, Scored
from ingot.train.losses.value_loss import ValueLoss

ARMS = 6


def streams_of(count: int, **more: Tensor) -> dict[str, Tensor]:
    """A sequence for every token, unless it is said otherwise."""
    one = torch.ones(count, dtype=torch.float64)
    usual = {"response_mask": one, "advantage": one, "sequence": torch.arange(1, count + 1).double()}
    return usual | {"episode_tokens": one, "group_tokens": one} | {name: value.double() for name, value in more.items()}


MU = torch.tensor([0.5, 0.4, 0.1, 0.2, 0.25]).double()
OLD = torch.tensor([0.1, 0.4, 0.3, 0.3, 0.5]).double()  # ρ = 0.2, 1, 3, 1.5, 2
NUMBERS = torch.tensor([1, 1, 1, 2, 2])  # products 0.6 and 3; geometric means 0.6^⅓ and √3
CORRECTIONS: dict[str, tuple[Correction, list[float]]] = {
    "truncated": (Importance(high=2.0), [0.2, 1.0, 2.0, 1.5, 2.0]),
    "truncated on both sides": (Importance(low=0.5, high=2.5), [0.5, 1.0, 2.5, 1.5, 2.0]),
    "IcePop": (Importance(mode="mask", low=0.5, high=2.0), [0.0, 1.0, 0.0, 1.5, 2.0]),
    "product, truncated": (Importance("product", high=2.0), [0.6, 0.6, 0.6, 2.0, 2.0]),
    "product, masked": (Importance("product", "mask", high=2.0), [0.6, 0.6, 0.6, 0.0, 0.0]),
    "mean, masked": (Importance("mean", "mask", low=0.9, high=2.0), [0.0, 0.0, 0.0, 3**0.5, 3**0.5]),
    "current": (Importance(high=None, of="current"), [0.4, 0.5, 2.0, 1.0, 0.8]),
    # mean log(μ/π) of the sequences: (log 2.5 + log 2 − log 2)/3 = 0.305, log 1.25/2 = 0.112; A < 0 in both
    "sequence mask": (SequenceMask(0.2), [0.0, 0.0, 0.0, 1.0, 1.0]),
    # mean log(π_old/π): (log 0.5 + log 2 + log 1.5)/3 = 0.135, (log 1.5 + log 2.5)/2 = 0.661
    "sequence mask of π_old": (SequenceMask(0.2, "old"), [1.0, 1.0, 1.0, 0.0, 0.0]),
}


@pytest.mark.parametrize("name", CORRECTIONS)
def test_weights_by_hand(name: str) -> None:
    correction, expected = CORRECTIONS[name]
    current = torch.tensor([0.2, 0.2, 0.2, 0.2, 0.2]).double()
    streams = streams_of(5, sequence=NUMBERS, advantage=-torch.ones(5))
    weights = correction.weights(Probabilities(current.log(), OLD.log(), MU.log()), streams)
    assert weights.tolist() == pytest.approx(expected)


def test_a_sequence_with_a_positive_advantage_is_never_masked() -> None:
    logs = Probabilities(*(torch.tensor([value]).log() for value in (0.01, 0.5, 0.5)))
    assert SequenceMask(0.0).weights(logs, streams_of(1)).tolist() == [1.0]


def exact(loss: Callable[[Tensor], Tensor], logits: Tensor) -> Tensor:
    leaf = logits.clone().requires_grad_()
    return torch.autograd.grad(loss(leaf.log_softmax(-1)), leaf)[0]


def expected(term: LossTerm, logits: Tensor, draw: Tensor, **streams: Tensor) -> tuple[float, Tensor]:
    """Value and gradient of the term, in expectation over all arms, which are drawn with probabilities `draw`."""
    leaf = logits.clone().requires_grad_()
    logprobs = leaf.log_softmax(-1)
    listed = streams_of(ARMS, sampled_logprob=draw.log(), **streams)
    values = [
        term.numerator(
            Scored(logprobs[arm : arm + 1], {name: stream[arm : arm + 1] for name, stream in listed.items()})
        )[0]
        for arm in range(ARMS)
    ]
    total = (torch.stack(values) * draw).sum()
    return total.item(), torch.autograd.grad(total, leaf)[0]


def logits(seed: int) -> Tensor:
    return torch.randn(ARMS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(
    ("estimator", "right_value", "gradient_of"),
    [("k1", True, "nothing"), ("k2", False, "reverse"), ("k3", True, "forward"), ("k3_unbiased", True, "reverse")],
)
def test_estimates_of_the_divergence(estimator: Estimator, right_value: bool, gradient_of: str) -> None:
    """In expectation over the policy's own draws: the value of KL(π ‖ ref), and the gradient that each is known for."""
    policy, reference = logits(0), logits(1).log_softmax(-1)
    logs = policy.log_softmax(-1)
    divergence = (logs.exp() * (logs - reference)).sum().item()
    term = ReferenceDivergence(1.0, estimator)
    value, gradient = expected(term, policy, logs.exp(), reference_logprob=reference)
    assert (abs(value - divergence) < 1e-12) is right_value
    wanted = {
        "nothing": torch.zeros(ARMS, dtype=torch.float64),
        "reverse": exact(lambda p: (p.exp() * (p - reference)).sum(), policy),
        "forward": exact(lambda p: (reference.exp() * (reference - p)).sum(), policy),
    }
    assert (gradient - wanted[gradient_of]).abs().max() < 1e-12
    assert all((gradient - other).abs().max() > 1e-3 for name, other in wanted.items() if name != gradient_of)


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_estimates_from_samples_converge(estimator: Estimator) -> None:
    """200,000 draws: within four standard errors of the exact divergence, and k3 with the smaller error."""
    policy, reference = logits(0).log_softmax(-1), (logits(0) + 0.3 * logits(1)).log_softmax(-1)
    drawn = torch.multinomial(policy.exp(), 200_000, replacement=True, generator=torch.Generator().manual_seed(0))
    streams = streams_of(len(drawn), sampled_logprob=policy[drawn], reference_logprob=reference[drawn])
    term = ReferenceDivergence(1.0, estimator)
    estimate = term.numerator(Scored(policy[drawn], streams))[0] / term.denominator(streams)
    difference = (policy - reference)[drawn]
    values = difference if estimator == "k1" else (-difference).exp() - 1 + difference
    error = values.std().item() / len(drawn) ** 0.5
    assert abs(estimate.item() - (policy.exp() * (policy - reference)).sum().item()) < 4 * error
    assert error < 1e-3


def test_corrections_recover_the_on_policy_gradient() -> None:
    """Samples of another policy: with the whole importance weight the expected gradient is right, without it it is not."""
    policy, sampler, reward = logits(0), logits(2).softmax(-1), logits(3)
    right = exact(lambda p: -(p.exp() * reward).sum(), policy)
    plain = PolicyGradient(ClippedWeight(None, 1e9), old=None)
    _, without = expected(plain, policy, sampler, advantage=reward)
    assert (without - right).abs().max() > 0.05
    for term in (
        PolicyGradient(ClippedWeight(None, 1e9), corrections=(Importance(high=None),), old=None),
        PolicyGradient(ClippedWeight(None, 1e9), old="sampled_logprob"),  # r itself is the weight
        PolicyGradient(
            ClippedWeight(None, 1e9), corrections=(Importance("product", high=None, of="current"),), old=None
        ),
    ):
        _, gradient = expected(term, policy, sampler, advantage=reward)
        assert (gradient - right).abs().max() < 1e-12
    bounded = PolicyGradient(ClippedWeight(None, 1e9), corrections=(Importance(high=1.2),), old=None)
    _, near = expected(bounded, policy, sampler, advantage=reward)
    assert 0 < (near - right).norm() < (without - right).norm()


def test_the_entropy_is_right_on_average_whoever_sampled() -> None:
    """Tokens of a sampler μ: what is logged is the entropy of π, as scipy has it, in expectation over all arms."""
    logits, draw = torch.randn(ARMS, generator=torch.Generator().manual_seed(3)).double(), torch.full((ARMS,), 1 / ARMS)
    policy = logits.log_softmax(-1)
    for mu in (draw.double(), policy.exp()):
        streams = streams_of(ARMS, sampled_logprob=mu.log())
        each = [
            PolicyGradient().numerator(
                Scored(policy[arm : arm + 1], {name: stream[arm : arm + 1] for name, stream in streams.items()})
            )[1]["entropy"]
            for arm in range(ARMS)
        ]
        found = sum(float(share * value) for share, value in zip(mu, each, strict=True))
        assert found == pytest.approx(scipy.stats.entropy(policy.exp().numpy()), abs=1e-12)


def test_tokens_by_their_ratio() -> None:
    """π/μ of eight tokens; one of them is not learnt from."""
    ratios = torch.tensor([0.1, 0.51, 0.79, 0.81, 1.0, 1.26, 2.1, 9.0]).double()
    mask = torch.tensor([1, 1, 1, 1, 1, 1, 1, 0]).double()
    streams = streams_of(8, sampled_logprob=torch.full((8,), -3.0), response_mask=mask)
    logged = PolicyGradient().numerator(Scored(ratios.log() - 3.0, streams))[1]
    assert {name: round(float(logged[name])) for name in RATIOS} == {
        "ratio/below_0.5": 1,
        "ratio/0.5_to_0.8": 2,
        "ratio/0.8_to_1.25": 2,
        "ratio/1.25_to_2": 1,
        "ratio/above_2": 1,
    }


def test_aggregations_by_hand() -> None:
    """Answers of 1, 3 and 2 tokens to two tasks; every token's objective is its advantage."""
    values = torch.tensor([5.0, 1.0, 2.0, 3.0, 4.0, 8.0]).double()
    streams = streams_of(
        6,
        advantage=values,
        sampled_logprob=torch.zeros(6),
        episode_tokens=torch.tensor([1, 3, 3, 3, 2, 2]),
        group_tokens=torch.tensor([4, 4, 4, 4, 2, 2]),
    )
    scored = Scored(torch.zeros(6, dtype=torch.float64), streams)
    wanted: dict[Aggregation, float] = {
        Aggregation("token"): float(values.sum()) / 6,
        Aggregation("sequence"): (5 + 6 / 3 + 12 / 2) / 3,
        Aggregation("group"): (11 / 4 + 12 / 2) / 2,
        Aggregation("constant", 10): float(values.sum()) / (3 * 10),
    }
    for aggregation, value in wanted.items():
        term = PolicyGradient(aggregation=aggregation)
        total, logged = term.numerator(scored)
        assert (-total / term.denominator(streams)).item() == pytest.approx(value)
        assert (logged["ratio_mean"] / term.denominator(streams)).item() == pytest.approx(1.0)


def test_the_critics_loss_by_hand() -> None:
    value = torch.tensor([1.0, 0.9, 0.0], dtype=torch.float64, requires_grad=True)
    streams = streams_of(3) | {
        "return": torch.tensor([2.0, 0.5, 1.0]).double(),
        "old_value": torch.tensor([0.5, 1.0, 0.1]).double(),
    }
    # clipped values 0.7, 0.9, 0: errors max(1, 1.69), 0.16, 1
    scored = Scored(torch.zeros(3, dtype=torch.float64), streams, heads={"value": value})
    term = ValueLoss(clip=0.2)
    loss = term.numerator(scored)[0] / term.denominator(streams)
    assert loss.item() == pytest.approx((1.69 + 0.16 + 1.0) / 6)
    (gradient,) = torch.autograd.grad(loss, value)
    assert gradient.tolist() == pytest.approx([0.0, 0.4 / 3, -1.0 / 3])


@pytest.mark.parametrize("limit", [20.0, 5.0])
@pytest.mark.parametrize("advantage", [1.0, 0.0, -1.0])
def test_the_ratio_of_a_long_answer_stays_finite(advantage: float, limit: float) -> None:
    """8,000 tokens that each became 1.0126 times likelier: e^100 is infinite in float32. The value is that of the limit."""
    count, moved = 8_000, 0.0125
    logprobs = torch.full((count,), -1.0, requires_grad=True)
    streams = {name: value.float() for name, value in streams_of(count, sequence=torch.ones(count)).items()}
    streams |= {"advantage": torch.full((count,), advantage), "sampled_logprob": logprobs.detach() - moved}
    streams["reference_logprob"] = logprobs.detach() - 0.1
    unbounded = Importance("product", high=None, of="current", limit=limit)
    terms: list[LossTerm] = [
        PolicyGradient(Clip(0.2, 0.2), "product", limit=limit),
        PolicyGradient(ClippedWeight(None, 1e9), corrections=(unbounded,), old=None),
        ReferenceDivergence(1.0, "k3_unbiased", "product", limit=limit),
    ]
    largest = math.exp(limit)
    expected = [
        -count * (1.2 * advantage if advantage > 0 else largest * advantage),
        count * largest * advantage,  # the loss is −w A log π, and log π is −1
        count * largest * (math.exp(-0.1) - 1 + 0.1),
    ]
    for term, value in zip(terms, expected, strict=True):
        loss = term.numerator(Scored(logprobs, streams))[0]
        (gradient,) = torch.autograd.grad(loss, logprobs)
        assert gradient.isfinite().all()
        assert loss.item() == pytest.approx(value, rel=1e-4)


@pytest.mark.parametrize("level", ["token", "product", "mean"])
def test_a_ratio_within_the_limit_is_as_without(level: Level) -> None:
    """Value and gradient, of the ratio and of a weight."""
    generator = torch.Generator().manual_seed(1)
    logprobs = torch.randn(5, generator=generator).double().requires_grad_()
    streams = streams_of(5, sequence=NUMBERS, sampled_logprob=torch.randn(5, generator=generator))
    found = []
    for limit in (20.0, 1e9):
        correction = Importance(level, high=None, of="current", limit=limit)
        term = PolicyGradient(ClippedWeight(None, 1e9), level, corrections=(correction,), limit=limit)
        loss = term.numerator(Scored(logprobs, streams))[0]
        found.append((loss, *torch.autograd.grad(loss, logprobs)))
    torch.testing.assert_close(*found, rtol=0, atol=0)


def test_a_mask_by_probabilities() -> None:
    """DPPO by hand: −m w A + 1e-3 (log w)². Masked are a rise of 0.3 with A > 0 and a fall of 0.3 with A < 0, not the rare token
    whose ratio is 10, nor what moves back."""
    sampled = torch.tensor([0.5, 0.6, 0.001, 0.5, 0.6, 0.5]).double()
    current = torch.tensor([0.8, 0.3, 0.010, 0.2, 0.9, 0.6]).double()
    advantage = torch.tensor([1.0, -1.0, 2.0, 1.0, -1.0, 1.0]).double()
    kept = torch.tensor([0, 0, 1, 1, 1, 1]).double()
    logprobs = current.log().requires_grad_()
    streams = streams_of(6, sampled_logprob=sampled.log(), advantage=advantage)
    loss, logged = PolicyGradient(ProbabilityMask()).numerator(Scored(logprobs, streams))
    ratio = current / sampled
    torch.testing.assert_close(loss, (-kept * ratio * advantage + 1e-3 * ratio.log() ** 2).sum())
    (gradient,) = torch.autograd.grad(loss, logprobs)
    torch.testing.assert_close(gradient, -kept * ratio * advantage + 2e-3 * ratio.log())
    assert logged["clip_share"] == 2


def test_how_far_the_sampler_is_from_the_policy() -> None:
    """In expectation over the sampler's arms: KL(μ ‖ π), as scipy has it, and a mean ratio of 1; of `present` tokens too."""
    policy, mu = logits(3).log_softmax(-1), logits(4).softmax(-1)
    present = torch.tensor([1, 0, 1, 1, 0, 1]).double()
    streams = streams_of(ARMS, sampled_logprob=mu.log(), present=present)
    each = [
        PolicyGradient().numerator(
            Scored(policy[arm : arm + 1], {name: stream[arm : arm + 1] for name, stream in streams.items()})
        )[1]
        for arm in range(ARMS)
    ]
    logged = {name: float((torch.stack([one[name] for one in each]) * mu).sum()) for name in each[0]}
    ratio = policy.exp() / mu
    assert logged["sampler_divergence"] == pytest.approx(scipy.stats.entropy(mu.numpy(), policy.exp().numpy()))
    assert logged["ratio_mean"] == pytest.approx(1.0)
    assert logged["present_share"] == pytest.approx(float((mu * present).sum()))
    assert logged["present_ratio_mean"] == pytest.approx(float((policy.exp() * present).sum()))
    assert logged["present_divergence"] == pytest.approx(float((mu * present * (ratio - 1 - ratio.log())).sum()))


@pytest.mark.parametrize(
    ("term", "by_token"),
    [
        (PolicyGradient(), True),
        (PolicyGradient(corrections=(Importance(),)), True),
        (PolicyGradient(corrections=(Importance(), SequenceMask(0.1))), False),
        (PolicyGradient(corrections=(Importance("mean"),)), False),
        (PolicyGradient(level="product"), False),
        (ReferenceDivergence(estimator="k3_unbiased"), True),
        (ReferenceDivergence(estimator="k3_unbiased", level="mean"), False),
        (ReferenceDivergence(estimator="k3", level="mean"), True),
    ],
)
def test_which_terms_need_whole_sequences(term: PolicyGradient | ReferenceDivergence, by_token: bool) -> None:
    """Those that read a ratio of a sequence: context parallelism, which cuts it, refuses them."""
    assert term.by_token is by_token and ("sequence" in term.needs) is not by_token


def test_the_mean_value_is_over_the_tokens_that_are_learnt_from() -> None:
    streams = streams_of(3, response_mask=torch.tensor([1, 0, 1]), episode_tokens=torch.tensor([2, 2, 2]))
    streams |= {name: torch.zeros(3).double() for name in ("return", "old_value")}
    value = torch.tensor([1.0, 50.0, 2.0]).double()
    for aggregation in (Aggregation("token"), Aggregation("sequence")):
        term = ValueLoss(aggregation=aggregation)
        _, logged = term.numerator(Scored(torch.zeros(3).double(), streams, heads={"value": value}))
        assert (logged["value_mean"] / term.denominator(streams)).item() == 1.5


@pytest.mark.parametrize("term", [PolicyGradient, ReferenceDivergence])
def test_the_stream_of_the_old_policy_is_asked_for(term: type[PolicyGradient | ReferenceDivergence]) -> None:
    named = set(term().needs)
    assert named == set(term(old=None).needs) == set(term(old="old_logprob").needs) - {"old_logprob"}
    assert "old_logprob" in term(old="old_logprob").needs and "old_logprob" not in named
