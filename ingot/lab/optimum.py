"""The best value of a swept option: the vertex of a parabola in its logarithm, with an interval.

    y_sv = m_s + b x_v + c x_v^2 + noise      x = ln(value), m_s the level of seed s: what a seed does to all values alike drops
                                              out
    x*   = -b / 2c                            least squares; the interval is Fieller's of this ratio, with Student's t

A range that includes zero or less is taken as it is, without the logarithm. An optimum beyond the values that were tried is not
an optimum but a direction.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ingot.evals.scores.ratio import Ratio

Edge = Literal["smallest", "largest"]


@dataclass(frozen=True)
class Optimum:
    """The fitted best value and its interval; `edge`: it lies at or beyond that end of what was tried."""

    value: float
    low: float
    high: float
    log: bool
    edge: Edge | None
    curve: tuple[tuple[float, float], ...]  # the fitted parabola over the tried range, for a plot


def fit_optimum(values: Mapping[float, Mapping[int, float]], *, higher_is_better: bool) -> Optimum | None:
    """The optimum of a metric by value and seed; None where a parabola has no such end, or points are too few."""
    log = min(values, default=0.0) > 0
    rows = [(math.log(v) if log else v, seed, y) for v, found in values.items() for seed, y in found.items()]
    seeds = sorted({seed for _, seed, _ in rows})
    degrees = len(rows) - len(seeds) - 2
    if len({x for x, _, _ in rows}) < 3 or degrees < 1:
        return None
    centre = math.fsum(x for x, _, _ in rows) / len(rows)  # b and c are less alike around the middle
    x = np.array([row[0] for row in rows]) - centre
    y = np.array([row[2] for row in rows])
    levels = np.array([[float(row[1] == seed) for seed in seeds] for row in rows])
    design = np.column_stack([x, x * x, levels])
    inverse = np.linalg.pinv(design.T @ design)
    fitted = inverse @ design.T @ y
    error = float(((y - design @ fitted) ** 2).sum()) / degrees
    (vb, vbc), (_, vc) = (error * inverse[:2, :2]).tolist()
    b, c = float(fitted[0]), float(fitted[1])
    if c == 0 or (c < 0) != higher_is_better:
        return None
    ratio = Ratio(-b, 2 * c, vb, 4 * vc, -2 * vbc, degrees)
    low, high = ratio.interval()

    def back(place: float) -> float:
        place += centre
        if not log or math.isinf(place):
            return 0.0 if log and place < 0 else place
        return math.exp(min(place, 700.0))

    first, last = min(values), max(values)
    found = back(ratio.value)
    edge: Edge | None = "smallest" if found <= first else "largest" if found >= last else None
    grid = np.linspace(float(x.min()), float(x.max()), 41)
    level = float(fitted[2:].mean())
    curve = tuple((back(float(at)), level + b * float(at) + c * float(at) ** 2) for at in grid)
    return Optimum(found, back(low), back(high), log, edge, curve)
