"""The recent metrics of a run, for rules that compare new values with old ones. They only warn: a resumed run starts afresh."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from statistics import median

EARLY = 16  # values that make the early level


class History:
    """The last `size` values of every number, and the first few."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.values: defaultdict[str, deque[float]] = defaultdict(lambda: deque(maxlen=size))
        self.first: defaultdict[str, list[float]] = defaultdict(list)

    def add(self, metrics: Mapping[str, float]) -> None:
        """The numbers of one step."""
        for name, value in metrics.items():
            self.values[name].append(value)
            if len(self.first[name]) < EARLY:
                self.first[name].append(value)

    def last(self, name: str, count: int) -> list[float]:
        """The last `count` values, oldest first; none at all while fewer are known."""
        values = list(self.values[name])
        return values[-count:] if len(values) >= count else []

    def older(self, name: str, skip: int) -> list[float]:
        """All but the last `skip` values; none at all until half of the window is known."""
        values = list(self.values[name])
        return values[: len(values) - skip] if len(values) >= max(self.size // 2, skip + 1) else []

    def early(self, name: str) -> float | None:
        """The median of the first values, once they are all there."""
        return median(self.first[name]) if len(self.first[name]) == EARLY else None

    def full(self, name: str) -> bool:
        """Whether the window of this number is full."""
        return len(self.values[name]) == self.size
