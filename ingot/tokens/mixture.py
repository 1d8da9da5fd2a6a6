"""Decides which source each row of training data comes from: a schedule that follows weights and needs no history.

Source k with weight w_k (weights sum to 1) has its j-th row due at time (j + 1/2) / w_k; rows are served in the order
of their due times. This is the divisor method of Webster and Sainte-Laguë, the one that gives parliaments their seats:
the first m rows hold round(w_k t) rows of source k for one common t. With K sources

    | rows of k among the first m  -  w_k m |  <=  (1 + w_k (K - 2)) / 2,

so two or three sources are never more than one row off, at any m. The m-th row is computed in O(K²): the counts at time
t = m - K/2 - 1 are roundings, and at most K + 2 rows are left to serve. All arithmetic is in integers: no drift.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from itertools import islice
from typing import TYPE_CHECKING

from ingot.workspace.errors import RecipeError

if TYPE_CHECKING:
    from collections.abc import Iterator


class Apportionment:
    """An endless sequence of source names in which each name keeps the share of its weight."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        bad = {name: weight for name, weight in weights.items() if not (math.isfinite(weight) and weight >= 0)}
        if bad or not any(weights.values()):
            raise RecipeError(
                f"mixture weights {dict(weights)} give no shares",
                fix="give every source a weight of 0 or more, and at least one above 0",
            )
        # Sorted, so that the order in the recipe does not change the data.
        exact = {name: Fraction(weights[name]) for name in sorted(weights) if weights[name] > 0}
        common = math.lcm(*(value.denominator for value in exact.values()))
        self._shares = {name: int(value * common) for name, value in exact.items()}
        self._total = sum(self._shares.values())
        # Due times of different sources are compared as integers: (2 j + 1) * spacing.
        multiple = math.lcm(*self._shares.values())
        self._spacing = {name: multiple // share for name, share in self._shares.items()}

    def counts(self, rows: int) -> dict[str, int]:
        """How many of the first `rows` rows come from each source."""
        time = max(0, rows - len(self._shares) // 2 - 1)
        counts = {name: (2 * share * time + self._total) // (2 * self._total) for name, share in self._shares.items()}
        for _ in islice(self._serve(counts), rows - sum(counts.values())):
            pass
        return counts

    def rows(self, first: int, count: int) -> list[tuple[str, int]]:
        """The rows first .. first+count-1: the source of each, and which row of that source it is."""
        return list(islice(self._serve(self.counts(first)), count))

    def _serve(self, counts: dict[str, int]) -> Iterator[tuple[str, int]]:
        """Serve one row after the other, counting in `counts`; equal due times go by name."""
        while True:
            name = min(self._spacing, key=lambda name: ((2 * counts[name] + 1) * self._spacing[name], name))
            counts[name] += 1
            yield name, counts[name] - 1
