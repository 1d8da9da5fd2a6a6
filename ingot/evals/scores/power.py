"""How much noise is in a score, where it comes from, and how many questions and samples would show a difference.

A score is a mean over n questions of the mean of K samples each. Its variance has two parts (Miller 2024, sections 3 and 5):

    Var(score) = (between + within / K) / n

`between` is the variance of the questions' true means: only other questions, or a paired comparison, help against it. `within`
is the mean variance of the samples of one question: more samples help. From samples, within = mean of s_i^2 and between =
variance of the means - within / K, which is unbiased (one-way analysis of variance).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ingot.evals.scores.distributions import NORMAL
from ingot.evals.scores.statistics import CONFIDENCE

POWER = 0.8


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


def _reach(confidence: float, power: float) -> float:
    return NORMAL.inv_cdf((1 + confidence) / 2) + NORMAL.inv_cdf(power)
