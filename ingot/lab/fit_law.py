"""Fit the law of the loss to runs; intervals by bootstrap over runs.

    minimise  sum_i Huber_d( ln(E + A N_i^-alpha + B D_i^-beta) - ln L_i )       d = 1e-3
                                                                        (arXiv 2203.15556; re-fitted in arXiv 2404.10102)

With (alpha, beta) given, the other three are a linear problem of least squares (variable projection, as in arXiv 2603.22339): the
best cell of a grid is where the descent starts, so the same table always gives the same law. The descent is damped Gauss-Newton
on (ln A, ln B, ln E, alpha, beta) with residuals weighted by min(1, d / |r|), a majorant of Huber's loss: no step goes up.

A bootstrap draws whole runs with replacement, those of all seeds and with all their horizons, and fits again, from the law of all
runs. Draws that cannot fix five coefficients are drawn again. The draws descend together, as one batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingot.lab.loss_law import LossLaw
from ingot.workspace.errors import DataError

Array = NDArray[np.float64]
COEFFICIENTS = 5
HUBER = 1e-3
GRID = np.arange(0.05, 1.51, 0.05)  # of alpha and of beta
SMALLEST = 1e-9  # of a linear coefficient, where least squares would have it negative
LOWEST = np.array(
    [-40.0, -40.0, -40.0, 0.01, 0.01]
)  # beyond these a term is gone, or a step: draws of few runs go there
HIGHEST = np.array([40.0, 40.0, 40.0, 5.0, 5.0])
STEPS = 300
CLOSE = 1e-9  # a relative gain of the objective that is none
STIFF = 1e8  # the damping at which no step is left
DISTINCT = 3  # sizes and horizons that a law needs
FEWEST_RUNS = 4  # three runs of three sizes have only one draw, and an interval without width
SPREAD = 1.5  # between the smallest and the largest ratio of tokens to parameters
CONFIDENCE = 0.95


@dataclass(frozen=True)
class MeasuredRun:
    """What a run reached: one row of a table. Rows of one `run` are drawn together."""

    parameters: float
    tokens: float
    loss: float
    run: str

    @property
    def product(self) -> float:
        """Training compute, but for a constant factor."""
        return self.parameters * self.tokens


@dataclass(frozen=True)
class Interval:
    """A value of the fitted law, and where 95 % of the draws have it."""

    value: float
    low: float
    high: float
    error: float  # standard deviation over draws


@dataclass(frozen=True)
class FittedLaw:
    """The law, one law for each bootstrap draw, and what is left: ln of predicted over measured loss."""

    law: LossLaw
    draws: tuple[LossLaw, ...]
    residuals: Array
    objective: float

    def interval(self, quantity: Callable[[LossLaw], float]) -> Interval:
        """Any quantity of the law, with its interval."""
        return _interval(quantity(self.law), np.array([quantity(law) for law in self.draws]))

    def prediction(self, parameters: float, tokens: float) -> Interval:
        """The loss of a run that is not in the table: the law's draws, each with the noise of one more run."""
        laws = np.array([law.loss(parameters, tokens) for law in self.draws])
        freedom = max(len(self.residuals) - COEFFICIENTS, 1)
        noise = self.residuals * np.sqrt(len(self.residuals) / freedom)  # a fit leaves less than there was
        return _interval(self.law.loss(parameters, tokens), np.outer(laws, np.exp(-noise)).ravel())

    @property
    def scatter(self) -> float:
        """The standard deviation of runs around the law, as a share of their loss."""
        return float(np.sqrt((self.residuals**2).sum() / max(len(self.residuals) - COEFFICIENTS, 1)))


def fit_law(rows: Sequence[MeasuredRun], *, draws: int = 1000, seed: int = 0) -> FittedLaw:
    """The law of these runs. Refused where no fit could tell its five coefficients."""
    check_design(rows)
    x_log = np.log([row.parameters for row in rows])
    y_log = np.log([row.tokens for row in rows])
    x_middle, y_middle = float(x_log.mean()), float(y_log.mean())
    x, y = x_log - x_middle, y_log - y_middle  # around the middle, coefficients are less alike
    target = np.log([row.loss for row in rows])
    ones = np.ones((1, len(rows)))
    best, value = _descend(_start(x, y, target), x, y, target, ones)
    counts = _draw_runs(rows, draws, np.random.default_rng(seed))
    drawn = _descend(np.repeat(best, draws, axis=0), x, y, target, counts)[0]

    def law(at: Array) -> LossLaw:
        a, b, e, alpha, beta = at.tolist()
        return LossLaw(math.exp(e), math.exp(a + alpha * x_middle), math.exp(b + beta * y_middle), alpha, beta)

    residuals = _terms(best, x, y)[0][0] - target
    return FittedLaw(law(best[0]), tuple(law(at) for at in drawn), residuals, float(value[0]))


def check_design(rows: Sequence[MeasuredRun]) -> None:
    """Refuse runs from which the five coefficients cannot be told, however small their noise."""
    if len(rows) <= COEFFICIENTS:
        raise DataError(f"{len(rows)} rows for a law of {COEFFICIENTS} coefficients", fix="give six runs or more")
    if not _tells([row.parameters for row in rows], [row.tokens for row in rows]):
        fix = "three different sizes and three different horizons are the least"
        raise DataError("too few different sizes or horizons", fix=fix)
    runs = len({row.run for row in rows})
    if runs < FEWEST_RUNS:
        fix = f"give {FEWEST_RUNS} runs or more: other sizes, or other seeds"
        raise DataError(f"{runs} runs are too few to draw from", fix=fix)
    ratios = [row.tokens / row.parameters for row in rows]
    if max(ratios) < SPREAD * min(ratios):
        problem = f"all runs have about the same tokens for each parameter ({min(ratios):.3g} to {max(ratios):.3g})"
        fix = "add runs that train shorter or longer: with one ratio, size and tokens cannot be told apart (arXiv 2605.08541)"
        raise DataError(problem, fix=fix)


def _tells(sizes: Sequence[float], horizons: Sequence[float]) -> bool:
    """Whether there are enough different points."""
    points = set(zip(sizes, horizons, strict=True))
    return min(len(set(sizes)), len(set(horizons))) >= DISTINCT and len(points) >= COEFFICIENTS


def _draw_runs(rows: Sequence[MeasuredRun], draws: int, random: np.random.Generator) -> Array:
    """How often each row counts in each draw."""
    runs = sorted({row.run for row in rows})
    member = np.array([runs.index(row.run) for row in rows])
    sizes, horizons = np.array([row.parameters for row in rows]), np.array([row.tokens for row in rows])
    found: list[Array] = []
    while len(found) < draws:  # one draw in seventy at least is kept: no table needs more than six certain runs in it
        counts = random.multinomial(len(runs), np.full(len(runs), 1 / len(runs)))[member].astype(float)
        there = counts > 0
        if _tells(sizes[there].tolist(), horizons[there].tolist()):
            found.append(counts)
    return np.array(found)


def _start(x: Array, y: Array, target: Array) -> Array:
    """The best cell of the grid: one row of (ln A, ln B, ln E, alpha, beta)."""
    cells = []
    for alpha in GRID:
        for beta in GRID:
            features = np.stack([np.exp(-alpha * x), np.exp(-beta * y), np.ones_like(x)], axis=1)
            relative = features / np.exp(target)[:, None]  # an error of the logarithm is a relative one
            linear = np.linalg.lstsq(relative, np.ones_like(x), rcond=None)[0]
            cells.append([*np.log(np.maximum(linear, SMALLEST)), alpha, beta])
    at = np.array(cells)
    return at[[int(_objective(at, x, y, target, np.ones((1, len(x)))).argmin())]]


def _descend(at: Array, x: Array, y: Array, target: Array, counts: Array) -> tuple[Array, Array]:
    """Coefficients and objective of each row of counts, from each row of `at`."""
    at = at.copy()
    value = _objective(at, x, y, target, counts)
    damping = np.full(len(at), 1e-3)
    live = np.arange(len(at))
    for _ in range(STEPS):
        here, weights = at[live], counts[live]
        logarithm, share = _terms(here, x, y)
        residual = logarithm - target
        weights = weights * np.minimum(1, HUBER / np.maximum(np.abs(residual), np.finfo(float).tiny))
        slopes = np.stack([*np.moveaxis(share, -1, 0), -share[..., 0] * x, -share[..., 1] * y], axis=-1)
        normal = np.swapaxes(slopes * weights[..., None], 1, 2) @ slopes
        gradient = np.einsum("bij,bi->bj", slopes, weights * residual)
        diagonal = damping[live, None] * np.einsum("bjj->bj", normal) + 1e-14
        step = np.linalg.solve(normal + diagonal[..., None] * np.eye(COEFFICIENTS), gradient[..., None])[..., 0]
        there = np.clip(here - step, LOWEST, HIGHEST)
        after = _objective(there, x, y, target, counts[live])
        before = value[live]
        better = after < before
        at[live] = np.where(better[:, None], there, here)
        value[live] = np.where(better, after, before)
        damping[live] = np.where(better, damping[live] / 5, damping[live] * 4).clip(1e-12, STIFF)
        small = better & (before - after < CLOSE * before)
        live = live[~(small | (damping[live] >= STIFF))]
        if not len(live):
            break
    return at, value


def _terms(at: Array, x: Array, y: Array) -> tuple[Array, Array]:
    """ln of the law for each row of coefficients and each run, and the share of each of its three terms."""
    a, b, e, alpha, beta = (at[:, [column]] for column in range(COEFFICIENTS))
    terms = np.stack(np.broadcast_arrays(a - alpha * x, b - beta * y, e + 0 * x), axis=-1)
    top = terms.max(axis=-1, keepdims=True)
    total = top[..., 0] + np.log(np.exp(terms - top).sum(axis=-1))
    return total, np.exp(terms - total[..., None])


def _objective(at: Array, x: Array, y: Array, target: Array, counts: Array) -> Array:
    """The sum of Huber's loss for each row of coefficients."""
    size = np.abs(_terms(at, x, y)[0] - target)
    return (counts * np.where(size <= HUBER, size**2 / 2, HUBER * (size - HUBER / 2))).sum(axis=1)


def _interval(value: float, draws: Array) -> Interval:
    low, high = np.quantile(draws, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Interval(value, float(low), float(high), float(draws.std(ddof=1)))
