"""Means with honest standard errors, intervals and p-values; paired comparisons; how many questions a difference needs.

The questions are the sample (Miller 2024, "Adding Error Bars to Evals", arXiv 2411.00640):

    independent       SE^2 = sum (s_i - m)^2 / (n - 1) / n
    in clusters       SE^2 = C / (C - 1) * sum over clusters of (sum of (s_i - m) in it)^2 / n^2

Questions of one passage, or variants of one problem, are right or wrong together: they are a cluster. The paper has no factor
C / (C - 1). It is here, as in inspect-ai and statsmodels: with C clusters of one question each the second line is then the
first, and few clusters do not look more certain than they are. Intervals are Student's, with n - 1 or C - 1 degrees; shares
of fewer than 100 independent questions have Wilson's interval, which stays inside 0 to 1.

Two models on the same questions are compared by the differences per question, which leaves out what the questions share; also
in clusters. The p-value is that of the t-test, and below 100 questions of right or wrong the exact sign test of those on
which the two disagree (McNemar). K samples of a question are averaged first; power.py has what that leaves of their noise.

    pass@k = 1 - C(n-c, k) / C(n, k)      pass^k = C(c, k) / C(n, k)      for c right of n samples (unbiased, k <= n)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ingot.evals.scores.distributions import critical, fair_coin, two_sided

FEW = 100  # shares of fewer questions are not near enough to normal
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean, its standard error, and over how many things it was taken. One thing has an error that is not known: infinite."""

    value: float
    standard_error: float
    count: int
    degrees: float | None = None  # of freedom, where they are not count - 1

    @property
    def freedom(self) -> float:
        """The degrees of freedom of the standard error."""
        return self.count - 1 if self.degrees is None else self.degrees

    def interval(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Student's interval."""
        if self.standard_error == 0:
            return self.value, self.value
        reach = critical(confidence, self.freedom) * self.standard_error
        return self.value - reach, self.value + reach

    def p_value(self, against: float = 0.0) -> float:
        """How likely a mean at least so far from `against` would be, were that the true one (t-test, two-sided)."""
        if self.value == against:
            return 1.0
        if self.standard_error == 0:
            return 0.0
        return two_sided((self.value - against) / self.standard_error, self.freedom)


def estimate(values: Sequence[float]) -> Estimate:
    """Mean and standard error of independent values."""
    if not values:
        raise ValueError("no values to average")
    count = len(values)
    mean = math.fsum(values) / count
    if count == 1:
        return Estimate(mean, math.inf, 1)
    variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
    return Estimate(mean, math.sqrt(variance / count), count)


def estimate_units(units: Mapping[str, float], clusters: Mapping[str, str] | None = None) -> Estimate:
    """Mean and standard error of units; those of one cluster are not independent. A unit without a cluster is one by itself."""
    if not clusters:
        return estimate(list(units.values()))
    if not units:
        raise ValueError("no values to average")
    mean = math.fsum(units.values()) / len(units)
    sums: dict[tuple[bool, str], list[float]] = {}
    for unit, value in units.items():
        sums.setdefault((unit in clusters, clusters.get(unit, unit)), []).append(value - mean)
    groups = len(sums)
    if groups == 1:
        return Estimate(mean, math.inf, len(units), 0)
    squares = math.fsum(math.fsum(cluster) ** 2 for cluster in sums.values())
    error = math.sqrt(groups / (groups - 1) * squares) / len(units)
    return Estimate(mean, error, len(units), groups - 1)


def wilson(right: float, count: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Wilson's interval of a share: `right` of `count` independent questions."""
    z = critical(confidence, math.inf)
    share, spread = right / count, z * z / count
    centre = (share + spread / 2) / (1 + spread)
    reach = math.sqrt(share * (1 - share) * spread + spread * spread / 4) / (1 + spread)
    return max(0.0, centre - reach), min(1.0, centre + reach)


def is_share(units: Mapping[str, float], clusters: Mapping[str, str] | None = None) -> bool:
    """Whether these are few independent questions, each right or wrong: where the normal approximation fails."""
    return not clusters and len(units) < FEW and all(value in (0.0, 1.0) for value in units.values())


def interval_of_units(
    units: Mapping[str, float], clusters: Mapping[str, str] | None = None, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """The interval of a mean of units: Wilson's where they are few and right or wrong, else Student's."""
    if units and is_share(units, clusters):
        return wilson(math.fsum(units.values()), len(units), confidence)
    return estimate_units(units, clusters).interval(confidence)


def differences(after: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    """`after - before` of each unit, for two models measured on exactly the same ones."""
    if after.keys() != before.keys():
        raise ValueError("a paired comparison needs the same tasks on both sides")
    return {unit: after[unit] - before[unit] for unit in sorted(after)}


def paired_difference(
    after: Mapping[str, float], before: Mapping[str, float], clusters: Mapping[str, str] | None = None
) -> Estimate:
    """The mean difference of two models on the same units."""
    return estimate_units(differences(after, before), clusters)


def paired_p_value(
    after: Mapping[str, float], before: Mapping[str, float], clusters: Mapping[str, str] | None = None
) -> float:
    """How likely differences at least so large would be, were the two models the same."""
    if is_share(after, clusters) and is_share(before, clusters):
        changed = [value for value in differences(after, before).values() if value]
        return fair_coin(sum(value > 0 for value in changed), len(changed))
    return paired_difference(after, before, clusters).p_value()


def independent_difference(after: Estimate, before: Estimate) -> Estimate:
    """The difference of two independent estimates: variances add, degrees are Welch's."""
    error = math.hypot(after.standard_error, before.standard_error)
    return Estimate(after.value - before.value, error, min(after.count, before.count), _welch(after, before))


def _welch(*sides: Estimate) -> float:
    """Welch and Satterthwaite's degrees of freedom of a difference."""
    if any(math.isinf(side.standard_error) for side in sides):
        return 0.0
    variances = [side.standard_error**2 for side in sides]
    parts = [v * v / side.freedom for v, side in zip(variances, sides, strict=True) if v]
    return sum(variances) ** 2 / math.fsum(parts) if parts else math.fsum(side.freedom for side in sides)


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """p-values corrected for how many there are (Holm 1979): the chance of any false alarm stays below the level.

    The k-th smallest of m is multiplied by m - k + 1, and none is smaller than one before it.
    """
    corrected: dict[str, float] = {}
    largest = 0.0
    for number, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        largest = max(largest, min(1.0, (len(p_values) - number) * p_values[name]))
        corrected[name] = largest
    return {name: corrected[name] for name in p_values}


def task_means(samples: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The mean over the k samples of each task."""
    return {task: math.fsum(values) / len(values) for task, values in samples.items()}


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
