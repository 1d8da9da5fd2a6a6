"""The interval of a ratio of two means: Fieller's, which Student's t gives when the ratio is what is asked for.

    r is inside  <=>  |a - r b| <= t sqrt(v_aa - 2 r v_ab + r^2 v_bb)          (Fieller 1954, J. Roy. Stat. Soc. B 16)

for means a and b, the variances and covariance v of these means, and t for the confidence and degrees of freedom. It is the set
of ratios that a t-test of a - r b does not exclude. Where b may be zero, no ratio can be excluded on one side at least: the
interval is then unbounded, and that is what is returned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ingot.evals.scores.distributions import critical
from ingot.evals.scores.statistics import CONFIDENCE

UNBOUNDED = (-math.inf, math.inf)


@dataclass(frozen=True)
class Ratio:
    """a / b with the variances of both means, their covariance, and the degrees of freedom of these."""

    above: float
    below: float
    variance_above: float
    variance_below: float
    covariance: float
    degrees: float

    @property
    def value(self) -> float:
        """The ratio; not a number where the mean below is zero."""
        return self.above / self.below if self.below else math.nan

    def interval(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """Fieller's interval; unbounded where the mean below may be zero."""
        square = critical(confidence, self.degrees) ** 2
        if not math.isfinite(square):
            return UNBOUNDED
        a = self.below**2 - square * self.variance_below
        b = self.above * self.below - square * self.covariance
        c = self.above**2 - square * self.variance_above
        if a <= 0:
            return UNBOUNDED
        reach = math.sqrt(max(0.0, b * b - a * c))
        return (b - reach) / a, (b + reach) / a


def paired_ratio(above: Sequence[float], below: Sequence[float]) -> Ratio:
    """The ratio of the means of pairs, each pair from one run."""
    count = len(above)
    if count != len(below) or count < 2:
        raise ValueError("needs two pairs or more")
    return Ratio(
        mean(above),
        mean(below),
        covariance(above, above),
        covariance(below, below),
        covariance(above, below),
        count - 1,
    )


def mean(values: Sequence[float]) -> float:
    """The plain mean."""
    return math.fsum(values) / len(values)


def covariance(left: Sequence[float], right: Sequence[float]) -> float:
    """The covariance of the two means."""
    count, a, b = len(left), mean(left), mean(right)
    return math.fsum((x - a) * (y - b) for x, y in zip(left, right, strict=True)) / (count - 1) / count
