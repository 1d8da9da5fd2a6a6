"""Mixture weights against a general convex solver, against UniMax as published, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ingot.planner.mixture_weights import fit_mixture
from ingot.workspace.errors import RecipeError

optimize = pytest.importorskip("scipy.optimize")

SOURCES = st.dictionaries(st.sampled_from("abcdefg"), st.floats(1, 1000), min_size=2, max_size=6)


@settings(max_examples=60)
@given(available=SOURCES, data=st.data(), epochs=st.floats(1, 6), fill=st.floats(0.1, 0.97))
def test_nearest_feasible_weights(available: dict[str, float], data: st.DataObject, epochs: float, fill: float) -> None:
    """The minimum of KL(w || wished) over the simplex with caps, found by SLSQP, is not below ours."""
    names = sorted(available)
    wished = np.array([data.draw(st.floats(0.05, 1)) for _ in names])
    target = fill * epochs * sum(available.values())
    found = fit_mixture(available, target, dict(zip(names, wished.tolist(), strict=True)), epochs)
    ours = np.array([found[name] for name in names])
    caps = np.array([epochs * available[name] / target for name in names])
    assert ours.sum() == pytest.approx(1)
    assert (ours <= caps * (1 + 1e-9)).all()
    prior = wished / wished.sum()

    def divergence(weights: np.ndarray) -> float:
        weights = np.maximum(weights, 1e-12)
        return float((weights * np.log(weights / prior)).sum())

    solved = optimize.minimize(
        divergence,
        caps / caps.sum(),
        jac=lambda weights: np.log(np.maximum(weights, 1e-12) / prior) + 1,
        bounds=[(0, min(1.0, cap)) for cap in caps],
        constraints={
            "type": "eq",
            "fun": lambda weights: weights.sum() - 1,
            "jac": lambda weights: np.ones(len(weights)),
        },
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assume(solved.success)
    assert divergence(ours) <= divergence(solved.x) + 1e-7
    assert ours == pytest.approx(solved.x, abs=2e-3)


def unimax(sizes: dict[str, float], budget: float, epochs: float) -> dict[str, float]:
    """Algorithm 1 of Chung et al. 2023, arXiv 2304.09151: smallest first, a fair share of what is left, capped."""
    left, taken = budget, {}
    for index, name in enumerate(sorted(sizes, key=lambda name: sizes[name])):
        taken[name] = min(left / (len(sizes) - index), sizes[name] * epochs)
        left -= taken[name]
    return {name: tokens / sum(taken.values()) for name, tokens in taken.items()}


@given(available=SOURCES, epochs=st.floats(1, 6), fill=st.floats(0.05, 0.99))
def test_uniform_wishes_are_unimax(available: dict[str, float], epochs: float, fill: float) -> None:
    target = fill * epochs * sum(available.values())
    found = fit_mixture(available, target, dict.fromkeys(available, 1.0), epochs)
    assert found == pytest.approx(unimax(available, target, epochs), rel=1e-9)


def test_by_hand() -> None:
    """100 tokens at most 4 times in 1,000: math gives 0.4 of the wished 0.5; the others share 0.6 as 3 to 2."""
    found = fit_mixture({"web": 5_000, "code": 2_000, "math": 100}, 1_000, {"web": 3, "code": 2, "math": 5})
    assert found == pytest.approx({"web": 0.36, "code": 0.24, "math": 0.4})
    assert fit_mixture({"a": 60, "b": 40}, 400, {"a": 1, "b": 1})["a"] == pytest.approx(0.6)
    with pytest.raises(RecipeError, match=r"600 asked for, and 100 seen 4 times are 400.*\n.*ask for at most 400"):
        fit_mixture({"a": 60, "b": 40, "unused": 1e9}, 600, {"a": 1, "b": 1, "unused": 0})
