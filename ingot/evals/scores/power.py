"""How much noise is in a score, where it comes from, and how many questions and samples would show a difference.

A score is a mean over n questions of the mean of K samples each. Its variance has two parts (Miller 2024, sections 3 and 5):

    Var(score) = (between + within / K) / n

`between` is the variance of the questions' true means: only other questions, or a paired comparison, help against it. `within`
is the mean variance of the samples of one question: more samples help. From samples, within = mean of s_i^2 and between =
variance of the means - within / K, which is unbiased (one-way analysis of variance).

Few runs are compared by a t-test. Its chance to see a true difference d, with standard error e and v degrees of freedom:

    power = 1 - P(|T| <= t),  T = (Z + d / e) / U      Z normal, v U^2 chi-square with v degrees: noncentral t
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from ingot.evals.scores.distributions import NORMAL, critical
from ingot.evals.scores.statistics import CONFIDENCE

POWER = 0.8
PANELS = 1024  # of Simpson's rule for each stretch of U: nine digits
MOST_RUNS = 1000


@dataclass(frozen=True)
class Noise:
    """The two parts of the variance of a score, and over what they were found."""

    between: float
    within: float
    questions: int
    samples: int

    def standard_error(self, questions: int | None = None, samples: int | None = None) -> float:
        """That of a score over so many questions with so many samples each; by default of this one."""
        variance = self.between + self.within / (samples or self.samples)
        return math.sqrt(variance / (questions or self.questions))


def noise_of_samples(samples: Mapping[str, Sequence[float]]) -> Noise:
    """The noise in a score, from the samples of each question: of every question equally many, at least two."""
    sizes = {len(values) for values in samples.values()}
    if len(sizes) != 1 or min(sizes) < 2 or len(samples) < 2:
        raise ValueError("needs two questions or more, with equally many samples, at least two of each")
    [size] = sizes
    within = statistics.fmean(statistics.variance(values) for values in samples.values())
    of_means = statistics.variance(statistics.fmean(values) for values in samples.values())
    return Noise(max(0.0, of_means - within / size), within, len(samples), size)


def questions_needed(
    difference: float,
    spread: float,
    noise: tuple[float, float] = (0.0, 0.0),
    samples: tuple[int, int] = (1, 1),
    *,
    confidence: float = CONFIDENCE,
    power: float = POWER,
) -> int:
    """How many questions show a true `difference` between two models with this power:

        n = (z_(alpha/2) + z_beta)^2 (spread^2 + noise_A^2 / K_A + noise_B^2 / K_B) / difference^2

    `spread` is the standard deviation, over questions, of the difference of the two models' true means; `noise` that of the
    samples of one question, of both models.
    """
    variance = spread**2 + math.fsum(sigma**2 / k for sigma, k in zip(noise, samples, strict=True))
    return math.ceil(_reach(confidence, power) ** 2 * variance / difference**2)


def smallest_difference(standard_error: float, *, confidence: float = CONFIDENCE, power: float = POWER) -> float:
    """The smallest true difference that a comparison with this standard error shows with this power."""
    return _reach(confidence, power) * standard_error


def power_of_t_test(difference: float, standard_error: float, degrees: float, level: float = 1 - CONFIDENCE) -> float:
    """The chance that a two-sided t-test at this level sees a true difference that is measured with this standard error."""
    if standard_error == 0:
        return 1.0 if difference else level
    shift, limit = abs(difference) / standard_error, critical(1 - level, degrees)
    if math.isinf(limit):
        return 0.0
    if math.isinf(degrees):
        return NORMAL.cdf(shift - limit) + NORMAL.cdf(-shift - limit)
    constant = math.log(2) + degrees / 2 * math.log(degrees / 2) - math.lgamma(degrees / 2)

    def weighed(u: float) -> float:
        seen = NORMAL.cdf(shift - limit * u) + NORMAL.cdf(-shift - limit * u)
        power = (degrees - 1) * math.log(u) if u else 0.0 if degrees == 1 else -math.inf
        return math.exp(constant + power - degrees * u * u / 2) * seen

    end, turn, width = 1 + 12 / math.sqrt(degrees), shift / limit, 9 / limit  # `seen` falls from 1 to 0 around the turn
    edges = sorted({0.0, end, *(min(max(0.0, edge), end) for edge in (turn - width, turn + width))})
    return min(1.0, math.fsum(_simpson(weighed, left, right) for left, right in pairwise(edges)))


def _simpson(function: Callable[[float], float], left: float, right: float) -> float:
    step = (right - left) / PANELS
    values = [function(left + number * step) for number in range(PANELS + 1)]
    return step / 3 * (values[0] + 4 * math.fsum(values[1:-1:2]) + 2 * math.fsum(values[2:-1:2]) + values[-1])


def runs_needed(
    difference: float, deviation: float, *, paired: bool, level: float = 1 - CONFIDENCE, power: float = POWER
) -> int | None:
    """How many runs of each of two recipes show a true difference; None for more than a thousand.

    `deviation` is that of the differences of pairs, or of the runs of one recipe where they are not paired.
    """

    def enough(runs: int) -> bool:
        error = deviation * math.sqrt((1 if paired else 2) / runs)
        return power_of_t_test(difference, error, runs - 1 if paired else 2 * runs - 2, level) >= power

    if difference == 0 or not enough(MOST_RUNS):
        return None
    low, high = 1, MOST_RUNS  # one run is never enough, that many are
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def difference_shown(
    deviation: float, runs: int, *, paired: bool, level: float = 1 - CONFIDENCE, power: float = POWER
) -> float:
    """The smallest true difference that so many runs of each of two recipes show with this power; infinite for one run."""
    degrees = runs - 1 if paired else 2 * runs - 2
    if runs < 2:
        return math.inf
    error = deviation * math.sqrt((1 if paired else 2) / runs)
    return error * _errors_shown(degrees, level, power) if error else 0.0


@cache
def _errors_shown(degrees: float, level: float, power: float) -> float:
    """The smallest true difference that a t-test shows with this power, in standard errors."""
    low, high = 0.0, 1.0
    while power_of_t_test(high, 1.0, degrees, level) < power:
        low, high = high, 2 * high
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if power_of_t_test(middle, 1.0, degrees, level) >= power else (middle, high)
    return high


def _reach(confidence: float, power: float) -> float:
    return NORMAL.inv_cdf((1 + confidence) / 2) + NORMAL.inv_cdf(power)
