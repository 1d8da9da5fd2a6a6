"""The rate at which documents are shown: the truncated power-exponential curve of quality-aware upsampling, and its solver.

The axis x in [0, 1] is the cumulative share of a topic's tokens, worst to best.

    f(x) = 0                               x < a
    f(x) = C (x - a)^p exp(lambda (x - a))  x >= a

    integral of f over [0, 1]          =  target / available tokens
    average of f over the best bucket <=  M
    p in {0.01 … 2, 20 values},  0 <= lambda <= 2

For every p the largest feasible lambda is found by bisection (the best bucket's rate grows with lambda); the largest p
for which there is one is taken: the steepest curve that the cap allows. a is moved down to the edge of a bucket, so that
a bucket is either shown or not. With p < 1 the curve is concave, although the paper calls the family convex.

Olmo 3 (arXiv 2512.13961), A.2.4. The integral has a series with positive terms only, so nothing cancels:

    ∫ t^p e^(lambda t) dt over [0, u]  =  sum over n of lambda^n u^(p + n + 1) / (n! (p + n + 1))
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingot.workspace.errors import DataError

POWERS = np.linspace(0.01, 2.0, 20)
MAX_GROWTH = 2.0
TERMS = 40  # of the series; lambda u <= 2, so the last one is below 2^40 / 40! = 1e-36
HALVINGS = 60


@dataclass(frozen=True)
class Curve:
    """A solved curve. `discard` is a, `power` p, `growth` lambda and `scale` C of the formula."""

    discard: float
    power: float
    growth: float
    scale: float

    def integral(self, x: float) -> float:
        """The integral of the curve from 0 to x."""
        return self.scale * unscaled(x - self.discard, self.power, self.growth)

    def rates(self, edges: NDArray[np.float64]) -> NDArray[np.float64]:
        """The average of the curve over each bucket [edges[i], edges[i + 1]]; 0 for an empty one."""
        widths = np.diff(edges)
        areas = np.diff([self.integral(float(edge)) for edge in edges])
        return np.divide(areas, widths, out=np.zeros(len(widths)), where=widths > 0)


def unscaled(width: float, power: float, growth: float) -> float:
    """The integral of t^p e^(lambda t) over [0, width]; 0 below the discard point."""
    if width <= 0:
        return 0.0
    term, total = width ** (power + 1), 0.0
    for n in range(TERMS):
        total += term / (power + n + 1)
        term *= growth * width / (n + 1)
    return total


def snapped(discard: float, edges: NDArray[np.float64]) -> float:
    """The discard point moved down to the edge of a bucket; an edge that it meets up to rounding counts as met."""
    return float(edges[np.searchsorted(edges, discard + 1e-9, side="right") - 1])


def solve(ratio: float, edges: NDArray[np.float64], discard: float = 0.4, max_rate: float = 7.0) -> Curve:
    """The curve that shows `ratio` tokens for each token available. `edges`: of the buckets, from 0 to 1."""
    start = snapped(discard, edges)
    top = float(edges[np.flatnonzero(np.diff(edges) > 0)[-1]])  # where the best bucket that holds anything begins

    def best_rate(power: float, growth: float) -> float:
        """The average over the best bucket if the whole integral is 1."""
        whole = unscaled(1 - start, power, growth)
        return (whole - unscaled(top - start, power, growth)) / whole / (1 - top)

    for power in POWERS[::-1].tolist():
        if ratio * best_rate(power, 0.0) > max_rate:
            continue
        low, high = 0.0, MAX_GROWTH
        if ratio * best_rate(power, high) <= max_rate:
            low = high
        for _ in range(HALVINGS if low < high else 0):
            middle = (low + high) / 2
            low, high = (middle, high) if ratio * best_rate(power, middle) <= max_rate else (low, middle)
        return Curve(start, power, low, ratio / unscaled(1 - start, power, low))
    most = max_rate / best_rate(float(POWERS[0]), 0.0)
    raise DataError(
        f"a target of {ratio:.4g} times the available tokens needs more than {max_rate:g} copies of the best bucket",
        fix=f"ask for at most {most:.4g} times, raise max_rate to {max_rate * ratio / most:.3g}, or lower discard",
    )
