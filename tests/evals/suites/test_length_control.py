"""Length-controlled win rates: the fit against scikit-learn's, and a judge that only likes length."""

from __future__ import annotations

import numpy as np
import pytest

from ingot.evals.suites.alpaca.length_control import STRENGTHS, choose, design, fit, length_controlled


def comparisons(count: int, theta: float, phi: float, seed: int = 0) -> tuple[list[float], list[int], list[int]]:
    """Preferences drawn from the model itself: 1, 0, and some ties."""
    rng = np.random.default_rng(seed)
    mine, theirs = rng.integers(50, 3000, count), rng.integers(50, 3000, count)
    chance = 1 / (1 + np.exp(-(theta + phi * design(list(mine), list(theirs))[:, 1])))
    won = (rng.random(count) < chance).astype(float)
    won[rng.random(count) < 0.1] = 0.5
    return list(won), list(mine), list(theirs)


@pytest.mark.parametrize("strength", STRENGTHS[2:])
def test_the_fit_is_scikit_learn_s(strength: float) -> None:
    """L1, no intercept; a tie is half a win and half a loss, given to scikit-learn as two weighted rows, as AlpacaEval does."""
    linear = pytest.importorskip("sklearn.linear_model", reason="needs scikit-learn (pip install scikit-learn)")
    won, mine, theirs = comparisons(300, 0.7, -1.5)
    features, wanted = design(mine, theirs), np.asarray(won)
    model = linear.LogisticRegression(
        l1_ratio=1.0, solver="liblinear", fit_intercept=False, C=strength, tol=1e-10, max_iter=10_000
    )
    both, labels = np.concatenate([features, features]), np.repeat([1, 0], len(wanted))
    model.fit(both, labels, sample_weight=np.concatenate([wanted, 1 - wanted]))
    assert fit(features, wanted, float(strength)) == pytest.approx(model.coef_[0], abs=2e-4)


def test_what_length_buys_is_taken_away() -> None:
    """Equal models, of which one writes long: the raw win rate is high, the controlled one is a half."""
    rng = np.random.default_rng(1)
    theirs = rng.integers(200, 1500, 600)
    mine = theirs + rng.integers(-100, 1000, 600)  # mostly longer, by different amounts
    chance = 1 / (1 + np.exp(1.6 * design(list(mine), list(theirs))[:, 1]))  # phi = -1.6: longer wins
    won = (rng.random(600) < chance).astype(float)
    found = length_controlled(list(won), list(mine), list(theirs))
    assert (
        won.mean() > 0.7
        and found.value == pytest.approx(0.5, abs=3 * found.standard_error)
        and found.standard_error < 0.1
    )


def test_the_error_is_that_of_many_draws() -> None:
    found = [length_controlled(*comparisons(200, 0.5, -1.0, seed)) for seed in range(20)]
    spread = float(np.std([one.value for one in found], ddof=1))
    assert np.mean([one.standard_error for one in found]) == pytest.approx(
        spread, rel=0.4
    )  # a spread of 20 is known to 16 %


def test_edges() -> None:
    assert length_controlled([0.5] * 30, [10] * 30, [10] * 30).value == pytest.approx(0.5)
    certain = length_controlled([1.0] * 50, list(range(50)), [25] * 50)
    assert 0.9 < certain.value < 1 and choose(design([1, 2], [3, 5]), np.asarray([1.0, 0.0])) == STRENGTHS[-1]
