"""Whether the reward of a finished run is lower than it has been, by more than its noise.

mean over a tenth of the steps:  highest window  −  last window  >  4 σ sqrt(2 / steps of a window)
σ² = mean of (r_{i+1} − r_i)² / 2          the noise of a step, whatever the trend (von Neumann)
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

TENTH = 10
SIGMAS = 4.0  # the highest of many windows is chosen, so more than for one
LEAST = 0.02  # of the reward: less is not worth a word


@dataclass(frozen=True)
class Fall:
    """The reward was `before` up to a step, and is `after` at the end."""

    before: float
    step: int
    after: float


def find_fall(steps: Sequence[int], rewards: Sequence[float]) -> Fall | None:
    """The fall of the rewards at these steps, if there was one."""
    window = max(1, len(rewards) // TENTH)
    means = [statistics.fmean(rewards[end - window : end]) for end in range(window, len(rewards) + 1)]
    if len(means) <= window:  # the last window is the only one
        return None
    squares = [(later - earlier) ** 2 for earlier, later in itertools.pairwise(rewards)]
    noise = math.sqrt(statistics.fmean(squares) / 2)
    best = max(range(len(means)), key=means.__getitem__)
    fallen = means[best] - means[-1]
    if fallen <= max(LEAST, SIGMAS * noise * math.sqrt(2 / window)):
        return None
    return Fall(means[best], steps[best + window - 1], means[-1])
