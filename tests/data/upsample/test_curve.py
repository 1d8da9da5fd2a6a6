"""The upsampling curve against the published test vectors and against scipy's quadrature."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingot.data.steps.upsample.curve import POWERS, Curve, snapped, solve
from ingot.workspace.errors import DataError

integrate = pytest.importorskip("scipy.integrate")
TWENTY = np.linspace(0, 1, 21)

# Computed by the published solver for 20 equal buckets, a = 0.4, M = 7:
# ratio, p, lambda, C, rates of the buckets 8, 10, 12, 14, 16, 18, 19.
VECTORS = [
    (0.5, 2.000, 2.000, 2.753, [0.00, 0.06, 0.22, 0.56, 1.17, 2.17, 2.88]),
    (1.0, 2.000, 2.000, 5.506, [0.00, 0.11, 0.44, 1.12, 2.34, 4.35, 5.76]),
    (1.5, 2.000, 0.124, 19.700, [0.02, 0.32, 1.03, 2.17, 3.76, 5.80, 7.00]),
    (2.5, 0.638, 0.262, 8.572, [0.78, 2.35, 3.51, 4.55, 5.55, 6.52, 7.00]),
    (4.0, 0.010, 0.145, 6.477, [6.25, 6.46, 6.59, 6.71, 6.83, 6.94, 7.00]),
]


@pytest.mark.parametrize(("ratio", "power", "growth", "scale", "rates"), VECTORS)
def test_equal_to_the_test_vectors(ratio: float, power: float, growth: float, scale: float, rates: list[float]) -> None:
    curve = solve(ratio, TWENTY)
    assert round(curve.power, 3) == power
    assert round(curve.growth, 3) == growth
    assert round(curve.scale, 3) == scale
    assert [round(float(rate), 2) for rate in curve.rates(TWENTY)[[8, 10, 12, 14, 16, 18, 19]]] == rates
    assert (curve.rates(TWENTY)[:8] == 0).all()


def quadrature(curve: Curve, low: float, high: float) -> float:
    """The integral of the curve as its formula is written."""
    start = max(low, curve.discard)
    if high <= start:
        return 0.0

    def value(x: float) -> float:
        return float(curve.scale * (x - curve.discard) ** curve.power * np.exp(curve.growth * (x - curve.discard)))

    return float(integrate.quad(value, start, high, epsabs=1e-12, epsrel=1e-12, limit=200)[0])


@settings(max_examples=60)
@given(
    ratio=st.floats(0.05, 3.0),
    discard=st.floats(0, 0.5),
    widths=st.lists(st.floats(0.2, 5), min_size=4, max_size=24),
    max_rate=st.floats(6, 12),
)
def test_constraints_hold_by_quadrature(ratio: float, discard: float, widths: list[float], max_rate: float) -> None:
    edges = np.concatenate([[0.0], np.cumsum(widths)]) / np.sum(widths)
    edges[-1] = 1.0
    if ratio * 1.1 > max_rate * (1 - discard):
        return
    curve = solve(ratio, edges, discard, max_rate)
    assert curve.discard in edges and curve.discard <= discard + 1e-9
    assert quadrature(curve, 0, 1) == pytest.approx(ratio, rel=1e-7)
    rates = curve.rates(edges)
    for rate, low, high in zip(rates, edges[:-1], edges[1:], strict=True):
        assert rate == pytest.approx(quadrature(curve, low, high) / (high - low), rel=1e-6, abs=1e-9)
    assert rates[-1] <= max_rate * (1 + 1e-9)
    assert (np.diff(rates) >= -1e-12).all()
    # Nothing steeper would do: the next power is infeasible even without growth, and so is more growth.
    if curve.growth < 2:
        more = Curve(curve.discard, curve.power, curve.growth + 1e-4, 1.0)
        assert quadrature(more, edges[-2], 1) / (1 - edges[-2]) * ratio / quadrature(more, 0, 1) > max_rate
    if curve.power < 2:
        steeper = Curve(curve.discard, float(POWERS[curve.power < POWERS][0]), 0.0, 1.0)
        assert quadrature(steeper, edges[-2], 1) / (1 - edges[-2]) * ratio / quadrature(steeper, 0, 1) > max_rate


def test_the_discard_point_moves_down_to_an_edge() -> None:
    assert snapped(0.43, TWENTY) == pytest.approx(0.4)
    assert snapped(0.4, TWENTY) == pytest.approx(0.4)  # 8 / 20 as a float is not quite 0.4
    assert snapped(0.04, TWENTY) == 0.0


def test_an_impossible_target_says_what_would_be_possible() -> None:
    with pytest.raises(DataError, match=r"at most 4\.1\d* times"):
        solve(4.3, TWENTY)
    with pytest.raises(DataError) as caught:
        solve(4.3, TWENTY)
    most = float(str(caught.value).split("at most ")[1].split(" times")[0])
    assert solve(most * 0.999, TWENTY).power == pytest.approx(0.01)
