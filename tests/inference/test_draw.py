"""Drawing against transformers' warpers, exact probabilities (scipy's chi-squared test) and brute force."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import Tensor

from ingot.inference.controls import Controls
from ingot.inference.draw import draw, draw_positions, unpack_kept
from ingot.inference.sampling import Sampling
from ingot.kernels.head.uniform import stream, uniform
from ingot.workspace.errors import IngotError

from .draws import draw_once, transformers_distribution

CPU = torch.device("cpu")
TRUNCATIONS: list[dict[str, Any]] = [
    {"top_k": 5},
    {"top_k": 1},
    {"top_k": 500},
    {"top_p": 0.8},
    {"top_p": 0.6, "temperature": 1.3},
    {"top_p": 0.01},
    {"min_p": 0.1},
    {"min_p": 1.0},
    {"min_p": 0.02, "temperature": 0.7},
    {"top_k": 12, "top_p": 0.9, "temperature": 1.5},
    {"top_k": 30, "top_p": 0.95, "min_p": 0.05, "temperature": 2.0},
    {"top_p": 0.97, "min_p": 0.01},
]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("options", TRUNCATIONS)
def test_kept_sets_and_probabilities_are_those_of_transformers(options: dict[str, Any]) -> None:
    """Forty rows: the same tokens are kept, and u is where the exact distribution has the token that was drawn."""
    logits = normal(40, 60, seed=2) * 2
    samplings = [Sampling(seed=row, keep_set=True, **options) for row in range(40)]
    drawn = draw_once(logits, samplings, list(range(40)))
    assert drawn.kept_BW is not None and drawn.kept_logmass_B is not None
    for row, sampling in enumerate(samplings):
        exact = transformers_distribution(logits[row], sampling)
        kept = exact.nonzero()[:, 0].tolist()
        assert unpack_kept(drawn.kept_BW[row]) == kept
        policy = (logits[row].double() / sampling.temperature).softmax(-1)
        assert float(drawn.kept_logmass_B[row]) == pytest.approx(float(policy[kept].sum().log()), abs=1e-6)
        u = float(uniform(torch.tensor([stream(row)]), torch.tensor([row]))[0])
        cumulative, token = exact.cumsum(-1), int(drawn.ids_B[row])
        assert (float(cumulative[token - 1]) if token else 0.0) - 1e-6 <= u <= float(cumulative[token]) + 1e-6
        assert token in kept


@pytest.mark.parametrize(("scale", "top_p"), [(0.05, 0.9), (0.5, 0.999), (4.0, 0.9)])
def test_a_nucleus_larger_than_the_first_candidates(scale: float, top_p: float) -> None:
    logits = normal(1, 3000, seed=3) * scale
    drawn = draw_once(logits, [Sampling(top_p=top_p, keep_set=True)], [0])
    assert drawn.kept_BW is not None
    # float32 sums over 3000 tokens, as transformers has them, are off by 1e-6; so may be the size of the set
    exact = transformers_distribution(logits[0], Sampling(top_p=top_p)).nonzero()[:, 0].tolist()
    ours = unpack_kept(drawn.kept_BW[0])
    mass = logits[0].double().softmax(-1)
    assert float(mass[list(set(ours) ^ set(exact))].sum()) < 1e-5
    assert float(mass[ours].sum()) >= top_p > float(mass[ours].sum() - mass[ours].min())


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"top_k": 2}, [0, 1, 3]),  # as transformers: all that equal the second
        ({"top_k": 1}, [0]),
        ({"top_p": 0.5}, [0, 1, 3]),
        ({"top_k": 3, "top_p": 0.99}, [0, 1, 3]),
        ({"min_p": 0.4}, [0, 1, 3]),
        ({"top_k": 4}, [0, 1, 2, 3, 4]),
    ],
)
def test_equal_logits_are_kept_or_cut_together(options: dict[str, Any], kept: list[int]) -> None:
    logits = torch.tensor([[8.0, 4.0, 2.0, 4.0, 2.0, 1.0]]).log()
    drawn = draw_once(logits, [Sampling(keep_set=True, **options)], [0])
    assert drawn.kept_BW is not None and unpack_kept(drawn.kept_BW[0]) == kept


COMBINATIONS: list[dict[str, Any]] = [
    {"temperature": 0.5},
    {"temperature": 1.7},
    {"top_p": 0.8, "temperature": 1.3},
    {"top_k": 9, "min_p": 0.02},
    {"repetition_penalty": 1.4, "top_p": 0.9},
    {"logit_bias": ((3, 3.0), (4, -3.0)), "allowed_tokens": (3, *range(0, 40, 2)), "temperature": 2.0},
    {"repetition_penalty": 1.2, "top_k": 20, "top_p": 0.95, "min_p": 0.01, "min_new_tokens": 9, "stop_tokens": (1, 2)},
]


@pytest.mark.parametrize(
    ("options", "over"),
    [
        *((options, "seeds") for options in COMBINATIONS),
        (COMBINATIONS[-1], "steps"),
        *(pytest.param(options, "steps", marks=pytest.mark.slow) for options in COMBINATIONS[:-1]),
    ],
)
def test_frequencies_are_the_probabilities(options: dict[str, Any], over: str) -> None:
    count, logits, history = 10_000, normal(40, seed=1) * 2, ([1, 5, 7, 7], [30, 31])
    seeds = range(count) if over == "seeds" else [7] * count
    steps = [2] * count if over == "seeds" else range(count)
    if over == "steps" and "min_new_tokens" in options:
        options = {**options, "min_new_tokens": count, "max_new_tokens": count}
    sampling = Sampling(**options)
    samplings = [replace(sampling, seed=seed) for seed in seeds]
    drawn = draw_once(logits.expand(count, -1), samplings, steps, [history] * count)
    exact = transformers_distribution(logits, sampling, history).numpy()
    counts = np.bincount(drawn.ids_B.numpy(), minlength=40)
    assert counts[exact == 0].sum() == 0
    usual = exact * count >= 5  # the rest is put together in one cell
    observed, expected = counts[usual], exact[usual] * count
    if (rest := count - expected.sum()) > 1e-6:
        observed, expected = np.append(observed, counts[~usual].sum()), np.append(expected, rest)
    assert chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 0.01


MIXTURE: list[dict[str, Any]] = [
    {"temperature": 0.0},
    {},
    {"temperature": 0.6, "top_p": 0.9},
    {"top_k": 20},
    {"temperature": 1.3, "raw_logprobs": True},
    {"top_k": 300, "top_p": 0.5, "keep_set": True},
    {"min_p": 0.1, "top_logprobs": 3},
    {"frequency_penalty": 0.5, "repetition_penalty": 1.1},
    {"temperature": 0.0, "presence_penalty": 2.0},
    {"allowed_tokens": tuple(range(100)), "logit_bias": ((5, 4.0),)},
    {"min_new_tokens": 12, "stop_tokens": (3, 4, 5)},
]


def test_a_row_is_drawn_the_same_in_any_batch() -> None:
    logits = normal(44, 500, seed=4) * 3
    samplings = [Sampling(seed=row, **MIXTURE[row % len(MIXTURE)]) for row in range(44)]
    steps = [row * 11 % 17 for row in range(44)]
    histories = [([row, row + 1], [2 * row, 7]) for row in range(44)]
    drawn = draw_once(logits, samplings, steps, histories)
    for row in range(44):
        rows = slice(row, row + 1)
        alone = draw_once(logits[rows], samplings[rows], steps[rows], histories[rows])
        assert (int(alone.ids_B[0]), float(alone.logprobs_B[0])) == (
            int(drawn.ids_B[row]),
            float(drawn.logprobs_B[row]),
        )
    order = torch.randperm(44, generator=torch.Generator().manual_seed(0)).tolist()
    shuffled = draw_once(
        logits[order],
        [samplings[row] for row in order],
        [steps[row] for row in order],
        [histories[row] for row in order],
    )
    assert shuffled.ids_B.tolist() == drawn.ids_B[order].tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_log_probabilities_are_the_policys_whatever_is_modified(dtype: torch.dtype) -> None:
    logits = (normal(44, 200, seed=5) * 3).to(dtype)
    samplings = [Sampling(seed=row, **{"top_logprobs": 4, **MIXTURE[row % len(MIXTURE)]}) for row in range(44)]
    drawn = draw_once(logits, samplings, [0] * 44, [([1, 2], [3])] * 44)
    temperatures = torch.tensor([1.0 if one.raw_logprobs else one.temperature or 1.0 for one in samplings]).double()
    exact = (logits.double() / temperatures[:, None]).log_softmax(-1)
    expected = exact.gather(-1, drawn.ids_B[:, None])[:, 0]
    torch.testing.assert_close(drawn.logprobs_B, expected, atol=1e-6, rtol=0)
    assert drawn.top_ids_BN is not None and drawn.top_logprobs_BN is not None
    for row, sampling in enumerate(samplings):
        values, _ = exact[row].topk(sampling.top_logprobs)
        given_ids = drawn.top_ids_BN[row, : sampling.top_logprobs]
        torch.testing.assert_close(exact[row][given_ids], values, atol=1e-6, rtol=0)
        torch.testing.assert_close(drawn.top_logprobs_BN[row, : sampling.top_logprobs], values, atol=1e-6, rtol=0)


def test_greedy_takes_the_first_of_the_likeliest() -> None:
    logits = torch.tensor([[0.0, 3.0, 1.0, 3.0], [5.0, 3.0, 1.0, 3.0]])
    assert draw_once(logits, [Sampling(temperature=0.0)] * 2, [0, 0]).ids_B.tolist() == [1, 0]
    mixed = [Sampling(temperature=0.0), Sampling(top_k=1)]
    assert draw_once(logits, mixed, [0, 0]).ids_B.tolist() == [1, 0]


def test_tokens_of_probability_zero_are_never_drawn() -> None:
    logits = torch.full((2000, 11), -math.inf)
    logits[:, 3], logits[:, 7] = 0.0, -1.0
    kinds: list[dict[str, Any]] = [{}, {"top_p": 0.99}, {"top_k": 5}, {"min_p": 0.01}]
    drawn = draw_once(logits, [Sampling(seed=seed, **kinds[seed % 4]) for seed in range(2000)], [0] * 2000)
    assert set(drawn.ids_B.tolist()) == {3, 7}
    assert torch.isfinite(drawn.logprobs_B).all()


def test_the_smallest_and_the_largest_uniform_number_stay_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = normal(5, 100_000, seed=6) * 5
    logits[:, :50] = logits[:, -50:] = -math.inf
    for number in (0.0, 1 - 2.0**-52):
        numbers = torch.full((5,), number, dtype=torch.float64)
        monkeypatch.setattr("ingot.kernels.head.draw.uniform", lambda streams, steps, numbers=numbers: numbers)
        drawn = draw_once(logits, [Sampling()] * 4 + [Sampling(top_p=0.99)], [0] * 5)
        assert torch.isfinite(drawn.logprobs_B).all()
        assert 50 <= int(drawn.ids_B.min()) <= int(drawn.ids_B.max()) < 100_000 - 50


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
@pytest.mark.parametrize("options", MIXTURE)
def test_logits_that_are_not_numbers_are_seen(wrong: float, options: dict[str, Any]) -> None:
    logits = normal(2, 120)
    logits[1, 7] = wrong
    first, second = draw_once(logits, [Sampling(**options)] * 2, [0, 0]).logprobs_B.tolist()
    assert math.isfinite(first) and not math.isfinite(second)


def test_several_positions_are_single_draws() -> None:
    logits = normal(11, 4, 130, seed=7) * 3
    samplings = [Sampling(seed=row, **{"keep_set": True, **options}) for row, options in enumerate(MIXTURE)]
    steps, histories = torch.arange(11) * 3, [([row], [row + 1]) for row in range(11)]
    controls = Controls(samplings, CPU, 130, histories)
    several = draw_positions(logits, controls, steps)
    assert several.kept_BW is not None
    for position in range(4):
        single = draw(logits[:, position], Controls(samplings, CPU, 130, histories), steps + position)
        assert single.kept_BW is not None
        rows = [row for row, one in enumerate(samplings) if position == 0 or not one.penalises]
        for ours, theirs in (
            (several.ids_B, single.ids_B),
            (several.logprobs_B, single.logprobs_B),
            (several.kept_BW, single.kept_BW),
        ):
            assert torch.equal(ours.unflatten(0, (11, 4))[rows, position], theirs[rows])
    # rows with penalties have counted the token of their first position
    texts = [[row + 1, int(several.ids_B[4 * row])] for row in range(11)]
    expected = Controls(samplings, CPU, 130, [([row], text) for row, text in enumerate(texts)])
    counted, fresh = controls.modify(logits[:, 0], steps), expected.modify(logits[:, 0], steps)
    assert counted is not None and fresh is not None and torch.equal(counted, fresh)
    assert controls.repeated(4) is controls.repeated(4)


def test_logits_of_another_batch_are_refused() -> None:
    with pytest.raises(IngotError, match=r"logits \(2, 7\) for controls of \(2, 8\)"):
        draw(torch.zeros(2, 7), Controls([Sampling()] * 2, CPU, 8), torch.zeros(2, dtype=torch.int64))


@settings(max_examples=60)
@given(
    values=st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=40),
    temperature=st.sampled_from([0.0, 0.01, 0.5, 1.0, 3.0]),
    top_p=st.floats(0.01, 1.0),
    top_k=st.integers(0, 50),
    min_p=st.floats(0, 1),
    seed=st.integers(-(2**70), 2**70),
    step=st.integers(0, 2**40),
)
def test_any_request_gives_a_likely_token(
    values: list[float], temperature: float, top_p: float, top_k: int, min_p: float, seed: int, step: int
) -> None:
    sampling = Sampling(temperature=temperature, top_p=top_p, top_k=top_k, min_p=min_p, seed=seed)
    drawn = draw_once(torch.tensor([values]), [sampling], [step])
    token, ranked, logprob = int(drawn.ids_B[0]), sorted(values, reverse=True), float(drawn.logprobs_B[0])
    assert math.isfinite(logprob) and logprob <= 1e-6
    if temperature == 0 or top_k == 1:
        assert values[token] == ranked[0]
    elif top_k:
        assert values[token] >= ranked[min(top_k, len(values)) - 1]
    if temperature > 0 and min_p > 0:
        assert (values[token] - ranked[0]) / temperature >= math.log(min_p) - 1e-4
