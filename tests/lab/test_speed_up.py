"""Effective speed-ups of runs that follow a known curve, and the fitted optimum of a sweep against least squares of scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from ingot.lab.optimum import fit_optimum
from ingot.lab.speed_up import CurvePoint, speed_up

SEEDS = range(1, 5)
SLOPE = -0.1


def loss(compute: float) -> float:
    return 3 + SLOPE * math.log(compute)


def points(generator: np.random.Generator, noise: float, lengths: tuple[float, ...] = (0.5, 1, 2)) -> list[CurvePoint]:
    shared = {seed: 0.02 * generator.standard_normal() for seed in SEEDS}
    return [
        CurvePoint(c, {seed: loss(c) + shared[seed] + noise * generator.standard_normal() for seed in SEEDS})
        for c in lengths
    ]


@pytest.mark.parametrize("truth", [0.3, 0.6, 1.0, 1.2, 1.9, 2.5])
@pytest.mark.parametrize("compute", [1.0, 1.1])
def test_without_noise_it_is_the_truth(truth: float, compute: float) -> None:
    curve = points(np.random.default_rng(0), 0.0)
    own = {seed: value + loss(truth * compute) - loss(1) for seed, value in curve[1].values.items()}
    found = speed_up(curve, own, compute, paired=True, higher_is_better=False)
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((truth,) * 3, rel=1e-6)
    assert found.extrapolated == (not 0.5 <= truth * compute <= 2)
    upside_down = [CurvePoint(p.compute, {s: -v for s, v in p.values.items()}) for p in curve]
    other = speed_up(upside_down, {s: -v for s, v in own.items()}, compute, paired=True, higher_is_better=True)
    assert other is not None and other.value == pytest.approx(truth, rel=1e-6)


@pytest.mark.parametrize("paired", [True, False])
def test_the_interval_covers_the_truth_as_often_as_it_says(paired: bool) -> None:
    generator = np.random.default_rng(1)
    inside, trials = 0, 400
    for _ in range(trials):
        curve = points(generator, 0.003, (0.5, 1)) if paired else _independent(generator)
        level = loss(1.3) - loss(1)
        own = (
            {s: v + level + 0.003 * generator.standard_normal() for s, v in curve[1].values.items()}
            if paired
            else {s: loss(1.3) + 0.004 * generator.standard_normal() for s in SEEDS}
        )
        found = speed_up(curve, own, 1.0, paired=paired, higher_is_better=False)
        assert found is not None
        inside += found.low <= 1.3 <= found.high
    low, high = scipy.stats.binom.interval(0.9999, trials, 0.95)
    # pairs share the noise of the anchor, which Fieller knows; apart, the degrees of freedom are on the careful side
    assert low <= inside and (inside <= high or not paired)


def _independent(generator: np.random.Generator) -> list[CurvePoint]:
    return [CurvePoint(c, {s: loss(c) + 0.004 * generator.standard_normal() for s in SEEDS}) for c in (0.5, 1.0)]


def test_a_flat_curve_bounds_nothing_and_one_length_says_nothing() -> None:
    generator = np.random.default_rng(2)
    flat = [CurvePoint(c, {s: 3 + 0.01 * generator.standard_normal() for s in SEEDS}) for c in (0.5, 1.0)]
    found = speed_up(flat, dict.fromkeys(SEEDS, 2.99), 1.0, paired=True, higher_is_better=False)
    assert found is not None and (found.low, found.high) == (0.0, math.inf)
    assert speed_up(flat[:1], dict.fromkeys(SEEDS, 2.99), 1.0, paired=True, higher_is_better=False) is None
    assert speed_up(flat, {1: 2.99}, 1.0, paired=True, higher_is_better=False) is None


def swept(seed: int, values: tuple[float, ...], best: float, noise: float = 0.01) -> dict[float, dict[int, float]]:
    generator = np.random.default_rng(seed)
    level = {s: 2 + 0.1 * generator.standard_normal() for s in SEEDS}
    return {
        v: {s: level[s] + 0.2 * math.log(v / best) ** 2 + noise * generator.standard_normal() for s in SEEDS}
        for v in values
    }


RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)


def test_the_optimum_is_that_of_scipys_curve_fit_and_its_ends_are_where_t_is_critical() -> None:
    values = swept(0, RATES, 8e-4)
    found = fit_optimum(values, higher_is_better=False)
    assert found is not None and found.log and found.edge is None
    rows = [(math.log(v), s, y) for v, row in values.items() for s, y in row.items()]
    x, s, y = (np.array(column) for column in zip(*rows, strict=True))

    def model(at: np.ndarray, centre: float, bend: float, *levels: float) -> np.ndarray:
        return np.asarray(bend * (at - centre) ** 2 + np.array(levels)[s - 1])

    best, _ = scipy.optimize.curve_fit(model, x, y, p0=[math.log(1e-3), 0.2, 2, 2, 2, 2], xtol=1e-15, ftol=1e-15)
    assert math.log(found.value) == pytest.approx(best[0], rel=1e-7)
    # at an end of the interval, the slope of the fitted parabola there is just critical: a t-test on the regression at that x
    limit = scipy.stats.t.isf(0.025, len(x) - 6)
    for end in (found.low, found.high):
        around = x - math.log(end)
        design = np.column_stack([around, around**2, *(s == seed for seed in SEEDS)]).astype(float)
        fitted, [rest], _, _ = np.linalg.lstsq(design, y, rcond=None)
        error = math.sqrt(rest / (len(x) - 6) * np.linalg.inv(design.T @ design)[0, 0])
        assert abs(fitted[0]) / error == pytest.approx(limit, rel=1e-8)


def test_an_optimum_outside_is_a_direction() -> None:
    for best, edge in ((1e-6, "smallest"), (1.0, "largest")):
        found = fit_optimum(swept(1, RATES, best), higher_is_better=False)
        assert found is not None and found.edge == edge


def test_what_is_no_parabola() -> None:
    values = swept(2, RATES, 1e-3)
    assert fit_optimum(values, higher_is_better=True) is None  # it bends the other way
    assert fit_optimum(dict(list(values.items())[:2]), higher_is_better=False) is None
    plain = fit_optimum({v - 1e-3: row for v, row in values.items()}, higher_is_better=False)
    assert plain is None or not plain.log
