"""Means with honest standard errors, paired comparisons, pass@k and pass^k.

The tasks are the sample, not the generations: k generations of one task are correlated, so they are averaged first and
the standard error is taken over tasks (clustered by task): SE = sqrt(sum (m_i - m)^2 / (n - 1) / n). Two checkpoints on
the same tasks are compared by the mean of the differences per task and its own standard error, which leaves out the
noise that the tasks share (Miller 2024, "Adding Error Bars to Evals", arXiv 2411.00640).

    pass@k = 1 - C(n-c, k) / C(n, k)      pass^k = C(c, k) / C(n, k)      for c right of n samples (unbiased, k <= n)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Estimate:
    """A mean, its standard error, and over how many independent things it was taken."""

    value: float
    standard_error: float
    count: int


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and standard error of independent values. One value has no known error: it is infinite."""
    if not values:
        raise ValueError("no values to average")
    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return Estimate(mean, math.inf, 1)
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    return Estimate(mean, math.sqrt(variance / count), count)


def task_means(samples: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The mean over the k samples of each task."""
    return {task: math.fsum(values) / len(values) for task, values in samples.items()}


def clustered(samples: Mapping[str, Sequence[float]]) -> Estimate:
    """The mean over tasks of each task's mean; the standard error is over tasks."""
    return estimate(list(task_means(samples).values()))


def paired_difference(after: Mapping[str, float], before: Mapping[str, float]) -> Estimate:
    """Mean of `after - before` per task, for two checkpoints measured on exactly the same tasks."""
    if after.keys() != before.keys():
        raise ValueError("a paired comparison needs the same tasks on both sides")
    return estimate([after[task] - before[task] for task in sorted(after)])


def independent_difference(after: Estimate, before: Estimate) -> Estimate:
    """The difference of two independent estimates: variances add."""
    error = math.hypot(after.standard_error, before.standard_error)
    return Estimate(after.value - before.value, error, min(after.count, before.count))


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """The unbiased chance that at least one of k samples is right, from `correct` right ones among `samples`."""
    _check(samples, correct, k)
    return 1.0 - math.comb(samples - correct, k) / math.comb(samples, k)


def pass_hat_k(samples: int, correct: int, k: int) -> float:
    """pass^k: the unbiased chance that all of k samples are right."""
    _check(samples, correct, k)
    return math.comb(correct, k) / math.comb(samples, k)


def _check(samples: int, correct: int, k: int) -> None:
    if not 0 <= correct <= samples or not 1 <= k <= samples:
        raise ValueError(f"needs 0 <= correct <= samples and 1 <= k <= samples, got {correct} of {samples}, k = {k}")
