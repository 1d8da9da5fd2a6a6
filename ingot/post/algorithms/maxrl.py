"""MaxRL: the advantage of an answer is relative to how often its task is solved, so that rare successes count more.

    A_i = (R_i − mean(R)) / mean(R)          0 where mean(R) ≤ 0: nothing was solved

Of k right answers among n each has A = n/k − 1, a wrong one −1. The formula is prime-rl's; it asks for rewards that are not
negative. Clip and mean are PPO's over tokens.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from ingot.post.rollouts.policy_optimization import Clipped, group_advantages, groups_of


class MaxRl(Clipped):
    """Advantages in proportion to the inverse pass rate."""

    @property
    def least_group(self) -> int:
        return 2

    def answer_advantages(self, rewards: Sequence[float | None], group: int) -> list[float]:
        means = [statistics.mean(known) if known else 0.0 for known in groups_of(rewards, group)]
        centred = group_advantages(rewards, group, False)
        return [value / means[at // group] if means[at // group] > 0 else 0.0 for at, value in enumerate(centred)]
