"""Sampling against exact probabilities, the published SplitMix64 numbers, and transformers' logits warpers."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ingot.inference.sampling import GOLDEN, Controls, Sampling, draw, sample, uniform
from ingot.workspace.errors import IngotError

MASK = (1 << 64) - 1


def splitmix64(state: int) -> int:
    """The output function in plain integers."""
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & MASK
    return state ^ (state >> 31)


def chi_square_p(counts: Tensor, probabilities: Tensor) -> float:
    """The p-value of observed counts; cells with an expectation under 5 are put together."""
    expected = probabilities.double() * counts.sum()
    small = expected < 5
    observed = torch.cat((counts[~small].double(), counts[small].sum().double()[None]))
    expected = torch.cat((expected[~small], expected[small].sum()[None]))
    kept = expected > 0
    assert observed[~kept].sum() == 0
    statistic = ((observed - expected)[kept] ** 2 / expected[kept]).sum()
    freedom = int(kept.sum()) - 1
    return float(torch.special.gammaincc(torch.tensor(freedom / 2).double(), statistic / 2))


def draws(logits: Tensor, sampling: Sampling, count: int, over: str) -> Tensor:
    """How often each token is drawn from the same logits, over `count` seeds or token indices."""
    rows = logits.expand(count, -1)
    seeds = range(count) if over == "seeds" else [7] * count
    steps = [3] * count if over == "seeds" else list(range(count))
    samplings = [
        Sampling(temperature=sampling.temperature, top_p=sampling.top_p, top_k=sampling.top_k, seed=seed)
        for seed in seeds
    ]
    ids, _ = sample(rows, samplings, steps)
    return torch.bincount(ids, minlength=logits.shape[-1])


def test_the_published_numbers_of_splitmix64() -> None:
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    assert [splitmix64((1234567 + (i + 1) * GOLDEN) & MASK) for i in range(4)] == published


@pytest.mark.parametrize("seed", [0, 1, -1, 1234567, 2**63, 2**64 - 1, 10**30])
def test_uniform_numbers_equal_plain_integer_arithmetic(seed: int) -> None:
    controls = Controls([Sampling(seed=seed)] * 50, torch.device("cpu"))
    steps = torch.tensor([*range(49), 2**31])
    stream = splitmix64((seed + GOLDEN) & MASK)
    expected = [(splitmix64((stream + (step + 1) * GOLDEN) & MASK) >> 12) / 2**52 for step in steps.tolist()]
    assert uniform(controls.streams_B, steps).tolist() == expected


@pytest.mark.parametrize("over", ["seeds", "steps"])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.7])
def test_frequencies_are_the_probabilities(over: str, temperature: float) -> None:
    logits = torch.randn(40, generator=torch.Generator().manual_seed(1)) * 2
    counts = draws(logits, Sampling(temperature=temperature), 20_000, over)
    assert chi_square_p(counts, (logits.double() / temperature).softmax(-1)) > 0.01


def test_neighbouring_seeds_and_steps_are_independent() -> None:
    streams = Controls([Sampling(seed=seed) for seed in range(20_001)], torch.device("cpu")).streams_B
    zeros = torch.zeros(20_001, dtype=torch.int64)
    at_zero, at_one = uniform(streams, zeros), uniform(streams, zeros + 1)
    for first, second in ((at_zero[:-1], at_zero[1:]), (at_zero, at_one)):
        pairs = (first * 8).long() * 8 + (second * 8).long()
        assert chi_square_p(torch.bincount(pairs, minlength=64), torch.full((64,), 1 / 64)) > 0.01


def warped(logits: Tensor, sampling: Sampling) -> Tensor:
    """The distribution that transformers samples from."""
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    scores, ids = logits[None], torch.zeros(1, 1, dtype=torch.long)
    scores = TemperatureLogitsWarper(sampling.temperature)(ids, scores)
    if sampling.top_k:
        scores = TopKLogitsWarper(sampling.top_k)(ids, scores)
    if sampling.top_p < 1:
        scores = TopPLogitsWarper(sampling.top_p)(ids, scores)
    return torch.as_tensor(scores)[0].double().softmax(-1)


@pytest.mark.parametrize(
    ("top_k", "top_p", "temperature"), [(5, 1.0, 1.0), (0, 0.8, 1.0), (0, 0.6, 1.3), (12, 0.9, 1.5), (1, 1.0, 1.0)]
)
def test_truncation_is_that_of_transformers(top_k: int, top_p: float, temperature: float) -> None:
    logits = torch.randn(60, generator=torch.Generator().manual_seed(2)) * 2
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p)
    exact = warped(logits, sampling)
    counts = draws(logits, sampling, 20_000, "steps")
    assert counts[exact == 0].sum() == 0
    assert counts[exact > 0.005].min() > 0
    assert int((exact > 0).sum()) == 1 or chi_square_p(counts, exact) > 0.01


@pytest.mark.parametrize(("scale", "top_p"), [(0.05, 0.9), (0.5, 0.999), (4.0, 0.9)])
def test_a_nucleus_larger_than_the_first_candidates(scale: float, top_p: float) -> None:
    logits = torch.randn(3000, generator=torch.Generator().manual_seed(3)) * scale
    sampling = Sampling(top_p=top_p)
    exact = warped(logits, sampling)
    counts = draws(logits, sampling, 4000, "steps")
    assert counts[exact == 0].sum() == 0
    assert chi_square_p(counts.view(30, 100).sum(1), exact.view(30, 100).sum(1)) > 0.01


def test_a_row_is_drawn_the_same_in_any_batch() -> None:
    generator = torch.Generator().manual_seed(4)
    logits = torch.randn(40, 500, generator=generator) * 3
    kinds = [
        {"temperature": 0.0},
        {},
        {"temperature": 0.6, "top_p": 0.9},
        {"top_k": 20},
        {"temperature": 1.3},
        {"top_k": 300, "top_p": 0.5},
    ]
    samplings = [Sampling(seed=row, **kinds[row % len(kinds)]) for row in range(40)]  # type: ignore[arg-type]
    steps = [row * 11 % 17 for row in range(40)]
    ids, logprobs = sample(logits, samplings, steps)
    for row in range(40):
        alone, logprob = sample(logits[row : row + 1], samplings[row : row + 1], steps[row : row + 1])
        assert (int(alone[0]), float(logprob[0])) == (int(ids[row]), float(logprobs[row]))
    order = torch.randperm(40, generator=generator).tolist()
    shuffled, _ = sample(logits[order], [samplings[row] for row in order], [steps[row] for row in order])
    assert shuffled.tolist() == ids[order].tolist()


def test_log_probabilities_ignore_truncation_and_keep_temperature() -> None:
    logits = torch.randn(30, 200, generator=torch.Generator().manual_seed(5)) * 3
    samplings = [
        Sampling(temperature=temperature, top_k=top_k, top_p=top_p, seed=row)
        for row, (temperature, top_k, top_p) in enumerate(
            [(0.0, 0, 1.0), (1.0, 0, 1.0), (0.5, 3, 1.0), (2.0, 0, 0.4), (0.8, 10, 0.9)] * 6
        )
    ]
    ids, logprobs = sample(logits, samplings, [0] * 30)
    temperatures = torch.tensor([sampling.temperature or 1.0 for sampling in samplings]).double()
    expected = (logits.double() / temperatures[:, None]).log_softmax(-1).gather(-1, ids[:, None])[:, 0]
    torch.testing.assert_close(logprobs, expected, atol=2e-6, rtol=0)
    greedy = [row for row, sampling in enumerate(samplings) if sampling.temperature == 0]
    assert ids[greedy].tolist() == logits[greedy].argmax(-1).tolist()


def test_tokens_of_probability_zero_are_never_drawn() -> None:
    logits = torch.full((2000, 11), -math.inf)
    logits[:, 3], logits[:, 7] = 0.0, -1.0
    ids, logprobs = sample(logits, [Sampling(seed=seed) for seed in range(2000)], [0] * 2000)
    assert set(ids.tolist()) == {3, 7}
    assert torch.isfinite(logprobs).all()


def test_the_largest_uniform_number_stays_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    highest = torch.full((5,), 1 - 2.0**-52, dtype=torch.float64)
    monkeypatch.setattr("ingot.inference.sampling.uniform", lambda streams, steps: highest)
    logits = torch.randn(5, 100_000, generator=torch.Generator().manual_seed(6)) * 5
    logits[:, -50:] = -math.inf
    controls = Controls([Sampling()] * 4 + [Sampling(top_p=0.99)], torch.device("cpu"))
    ids, logprobs = draw(logits, controls, torch.zeros(5, dtype=torch.int64))
    assert torch.isfinite(logprobs).all()
    assert int(ids.max()) < 100_000 - 50


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=40),
    temperature=st.sampled_from([0.0, 0.01, 0.5, 1.0, 3.0]),
    top_p=st.floats(0.01, 1.0),
    top_k=st.integers(0, 50),
    seed=st.integers(-(2**70), 2**70),
    step=st.integers(0, 2**40),
)
def test_any_request_gives_a_likely_token(
    values: list[float], temperature: float, top_p: float, top_k: int, seed: int, step: int
) -> None:
    sampling = Sampling(temperature=temperature, top_p=top_p, top_k=top_k, seed=seed)
    ids, logprobs = sample(torch.tensor([values]), [sampling], [step])
    token, ranked = int(ids[0]), sorted(values, reverse=True)
    assert math.isfinite(float(logprobs[0])) and float(logprobs[0]) <= 1e-6
    if temperature == 0 or top_k == 1:
        assert values[token] == ranked[0]
    elif top_k:
        assert values[token] >= ranked[min(top_k, len(values)) - 1]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens is 0"),
        ({"temperature": -1.0}, "temperature is -1.0"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"top_p": 0.0}, "top_p is 0.0"),
        ({"top_p": 1.1}, "top_p is 1.1"),
        ({"top_k": -3}, "top_k is -3"),
    ],
)
def test_impossible_samplings_are_refused(wrong: dict[str, float], said: str) -> None:
    with pytest.raises(IngotError, match=said):
        Sampling(**wrong)  # type: ignore[arg-type]
