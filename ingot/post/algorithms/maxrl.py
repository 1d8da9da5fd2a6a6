"""MaxRL: the advantage of an answer is relative to how often its task is solved, so that rare successes count more.

    A_i = (R_i − mean(R)) / mean(R)          0 where mean(R) ≤ 0: nothing was solved

Of k right answers among n each has A = n/k − 1, a wrong one −1. The formula is prime-rl's; it asks for rewards that are not
negative. Clip and mean are PPO's over tokens.
"""

from __future__ import annotations

import statistics

from ingot.post.rl.objective import Clipped, centred


class MaxRl(Clipped):
    """Advantages in proportion to the inverse pass rate."""

    def group_advantages(self, rewards: list[float]) -> list[float]:
        mean = statistics.mean(rewards)
        return [one / mean if mean > 0 else 0.0 for one in centred(rewards)]
