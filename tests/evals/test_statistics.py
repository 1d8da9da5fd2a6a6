"""Statistics against enumeration, the standard library and simulation."""

from __future__ import annotations

import itertools
import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingot.evals.statistics import (
    Estimate,
    clustered,
    estimate,
    independent_difference,
    paired_difference,
    pass_at_k,
    pass_hat_k,
)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=50))
def test_mean_and_standard_error(values: list[float]) -> None:
    found = estimate(values)
    assert found.value == pytest.approx(statistics.fmean(values), abs=1e-6)
    assert found.standard_error == pytest.approx(statistics.stdev(values) / math.sqrt(len(values)), abs=1e-6)


def test_one_value_has_no_known_error_and_none_is_refused() -> None:
    assert estimate([3.0]) == Estimate(3.0, math.inf, 1)
    with pytest.raises(ValueError, match="no values"):
        estimate([])


def test_clustered_error_is_the_real_scatter_and_the_naive_one_is_not() -> None:
    """Samples of a task share its difficulty. The scatter of the mean over repeated draws is what an error must say."""
    generator = np.random.default_rng(0)
    tasks, samples, repeats = 60, 8, 2000
    chances = generator.beta(0.4, 0.4, size=(repeats, tasks, 1))
    right = (generator.random((repeats, tasks, samples)) < chances).astype(float)
    scatter = right.mean(axis=(1, 2)).std()
    reported = statistics.fmean(
        clustered({str(task): list(right[repeat, task]) for task in range(tasks)}).standard_error
        for repeat in range(0, repeats, 10)
    )
    naive = right[0].std() / math.sqrt(tasks * samples)
    assert reported == pytest.approx(scatter, rel=0.05)
    assert naive < 0.6 * scatter


def test_paired_difference_leaves_out_what_the_tasks_share() -> None:
    generator = np.random.default_rng(1)
    hard = generator.random(200)
    before = {f"task-{index}": float(value) for index, value in enumerate(hard)}
    after = {task: value + 0.1 + float(generator.normal(0, 0.01)) for task, value in before.items()}
    paired = paired_difference(after, before)
    by_hand = [after[task] - before[task] for task in before]
    assert paired.value == pytest.approx(statistics.fmean(by_hand))
    assert paired.standard_error == pytest.approx(statistics.stdev(by_hand) / math.sqrt(200))
    unpaired = independent_difference(estimate(list(after.values())), estimate(list(before.values())))
    assert unpaired.value == pytest.approx(paired.value)
    assert unpaired.standard_error > 10 * paired.standard_error
    with pytest.raises(ValueError, match="same tasks"):
        paired_difference(after, {**before, "more": 1.0})


def test_independent_variances_add() -> None:
    assert independent_difference(Estimate(5, 3, 10), Estimate(1, 4, 20)) == Estimate(4, 5, 10)


@pytest.mark.parametrize("samples", range(1, 7))
def test_pass_at_k_and_pass_hat_k_against_enumeration(samples: int) -> None:
    for right in range(samples + 1):
        marks = [1] * right + [0] * (samples - right)
        for k in range(1, samples + 1):
            draws = list(itertools.combinations(marks, k))
            assert pass_at_k(samples, right, k) == pytest.approx(sum(any(draw) for draw in draws) / len(draws))
            assert pass_hat_k(samples, right, k) == pytest.approx(sum(all(draw) for draw in draws) / len(draws))


def test_pass_at_k_is_unbiased() -> None:
    """The mean over all outcomes of n samples at chance p is 1 - (1-p)^k exactly; that of 1 - (1 - c/n)^k is not."""
    chance, samples, k = 0.3, 6, 3
    weights = [math.comb(samples, c) * chance**c * (1 - chance) ** (samples - c) for c in range(samples + 1)]
    mean_at = sum(weight * pass_at_k(samples, c, k) for c, weight in enumerate(weights))
    mean_hat = sum(weight * pass_hat_k(samples, c, k) for c, weight in enumerate(weights))
    assert mean_at == pytest.approx(1 - (1 - chance) ** k)
    assert mean_hat == pytest.approx(chance**k)


@pytest.mark.parametrize("arguments", [(4, 5, 1), (4, -1, 1), (4, 2, 5), (4, 2, 0)])
def test_impossible_counts_are_refused(arguments: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="needs 0 <= correct"):
        pass_at_k(*arguments)
