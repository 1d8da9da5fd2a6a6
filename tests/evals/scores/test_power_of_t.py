"""The power of a t-test against scipy's noncentral t, and how many runs reach it."""

from __future__ import annotations

import math

import pytest
import scipy.stats

from ingot.evals.scores.power import difference_shown, power_of_t_test, runs_needed


def reference(shift: float, degrees: float, level: float) -> float:
    """As statsmodels' TTestPower computes it."""
    limit = scipy.stats.t.isf(level / 2, degrees)
    other_side = scipy.stats.nct.cdf(-limit, degrees, shift) if shift < 6 else 0.0  # there it is nan, and below 1e-9
    return float(scipy.stats.nct.sf(limit, degrees, shift) + other_side)


@pytest.mark.parametrize("degrees", [1, 2, 3, 7.5, 20, 400])
@pytest.mark.parametrize("level", [0.05, 0.05 / 12, 0.2])
@pytest.mark.parametrize("shift", [0.0, 0.5, 2.0, 4.0, 8.0])
def test_power_is_scipys(degrees: float, level: float, shift: float) -> None:
    found = power_of_t_test(shift * 0.3, 0.3, degrees, level)
    assert found == pytest.approx(reference(shift, degrees, level), abs=1e-8)  # nct itself has nine digits


def test_without_a_difference_power_is_the_level() -> None:
    for degrees in (1, 4, 30, math.inf):
        assert power_of_t_test(0.0, 1.0, degrees, 0.05) == pytest.approx(0.05, abs=1e-10)
    assert power_of_t_test(1.0, 0.0, 3) == 1 and power_of_t_test(1.0, 1.0, 0) == 0


@pytest.mark.parametrize("paired", [True, False])
@pytest.mark.parametrize("ratio", [0.3, 1.0, 3.0])
def test_the_smallest_number_of_runs(paired: bool, ratio: float) -> None:
    needed = runs_needed(ratio, 1.0, paired=paired)
    assert needed is not None

    def power(runs: int) -> float:
        error = math.sqrt((1 if paired else 2) / runs)
        return reference(ratio / error, runs - 1 if paired else 2 * runs - 2, 0.05)

    assert power(needed) >= 0.8 and (needed == 2 or power(needed - 1) < 0.8)


def test_what_no_reasonable_number_of_runs_shows() -> None:
    assert runs_needed(0.0, 1.0, paired=True) is None
    assert runs_needed(1e-3, 1.0, paired=True) is None


@pytest.mark.parametrize("paired", [True, False])
def test_the_difference_that_so_many_runs_show(paired: bool) -> None:
    shown = difference_shown(0.02, 4, paired=paired)
    error = 0.02 * math.sqrt((1 if paired else 2) / 4)
    assert reference(shown / error, 3 if paired else 6, 0.05) == pytest.approx(0.8, abs=1e-6)
    assert math.isinf(difference_shown(0.02, 1, paired=paired))
