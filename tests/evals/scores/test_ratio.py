"""The interval of a ratio against its definition by scipy's t-test, and what covers the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from ingot.evals.scores.ratio import UNBOUNDED, Ratio, paired_ratio

EXACT = 1e-10  # both sides are double precision; brentq stops at 1e-13


@pytest.mark.parametrize("count", [2, 3, 5, 20])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_the_interval_is_what_scipys_t_test_does_not_exclude(count: int, confidence: float) -> None:
    generator = np.random.default_rng(count)
    above = 0.4 + 0.02 * generator.standard_normal(count)
    below = 2.0 + 0.05 * generator.standard_normal(count) + above
    found = paired_ratio(above.tolist(), below.tolist())
    assert found.value == pytest.approx(above.mean() / below.mean(), rel=1e-12)

    def excess(ratio: float) -> float:
        return float(scipy.stats.ttest_1samp(above - ratio * below, 0.0).pvalue) - (1 - confidence)

    for end, far in zip(found.interval(confidence), (-1, 1), strict=True):
        if math.isinf(end):
            continue
        root = scipy.optimize.brentq(excess, found.value, found.value + far * 3 * abs(end - found.value), xtol=1e-15)
        assert end == pytest.approx(root, rel=EXACT)


def test_a_denominator_that_may_be_zero_bounds_nothing() -> None:
    assert paired_ratio([1.0, 1.1, 0.9], [0.1, -0.2, 0.15]).interval() == UNBOUNDED
    assert Ratio(1, 2, 0.1, 0.1, 0.0, 0).interval() == UNBOUNDED
    assert math.isnan(Ratio(1, 0, 0.1, 0.1, 0.0, 3).value)


def test_it_covers_the_truth_as_often_as_it_says() -> None:
    generator = np.random.default_rng(7)
    trials, inside = 2000, 0
    for _ in range(trials):
        shared = generator.standard_normal(3)
        low, high = paired_ratio(
            (0.3 + 0.05 * (shared + generator.standard_normal(3))).tolist(),
            (1.5 + 0.1 * (shared + generator.standard_normal(3))).tolist(),
        ).interval()
        inside += low <= 0.2 <= high
    low, high = scipy.stats.binom.interval(0.9999, trials, 0.95)  # of chance alone, once in ten thousand outside
    assert low <= inside <= high


@pytest.mark.parametrize("pairs", [([1.0], [2.0]), ([1.0, 2.0], [1.0])])
def test_one_pair_has_no_interval(pairs: tuple[list[float], list[float]]) -> None:
    with pytest.raises(ValueError, match="two pairs"):
        paired_ratio(*pairs)
