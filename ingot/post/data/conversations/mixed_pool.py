"""Endless passes over several sources, each with its weight: how often its conversations come in a pass.

    weight 1      every conversation once
    weight 2.5    every conversation twice, and half of them a third time
    weight 0.3    three of ten; the next pass takes the next ones, so that all are seen

Item i is a pure function of (seed, i), so that a stage goes on exactly where it was.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from ingot.post.data.conversations.sequences import ShuffledPool
from ingot.workspace.errors import RecipeError


class MixedPool:
    """Indices into sources that stand one after the other, with `sizes` conversations each."""

    def __init__(self, sizes: Sequence[int], weights: Sequence[float], seed: int) -> None:
        self._firsts, self._parts = list[int](), list[tuple[int, ShuffledPool | None, int]]()
        self.size = offset = 0
        self._weights = tuple(weights)
        for number, (size, weight) in enumerate(zip(sizes, weights, strict=True)):
            whole = int(weight)
            rest = round((weight - whole) * size)
            for _ in range(whole if size else 0):
                self._add(size, (offset, None, 0))
            if rest:
                self._add(rest, (offset, ShuffledPool(size, _own_seed(seed, number)), rest))
            offset += size
        self._order = ShuffledPool(self.size, seed)

    def _add(self, size: int, part: tuple[int, ShuffledPool | None, int]) -> None:
        self._firsts.append(self.size)
        self._parts.append(part)
        self.size += size

    def in_a_pass(self, amounts: Sequence[float]) -> float:
        """How much of something a pass has of which each source has so much."""
        return sum(weight * amount for weight, amount in zip(self._weights, amounts, strict=True))

    def __getitem__(self, index: int) -> int:
        place = self._order[index]
        found = bisect_right(self._firsts, place) - 1
        offset, rotating, count = self._parts[found]
        inside = place - self._firsts[found]
        if rotating is None:
            return offset + inside
        return offset + rotating[index // self.size * count + inside]


def _own_seed(seed: int, number: int) -> int:
    """Another order than that of the whole pool."""
    return seed * 1_000_003 + number + 1


def weights_of_shares(
    sizes: Sequence[int], weights: Sequence[float], shares: Sequence[float | None], names: Sequence[str]
) -> list[float]:
    """The weight of each source, where some are to have a share of all conversations of a pass.

    Where all have shares these are normalised, and a pass is as long as the files together.
    """
    asked = {number: share for number, share in enumerate(shares) if share is not None and sizes[number]}
    others = sum(
        size * weight for number, (size, weight) in enumerate(zip(sizes, weights, strict=True)) if number not in asked
    )
    total = sum(asked.values())
    if not asked:
        return list(weights)
    if others and total >= 1:
        name = names[next(iter(asked))]
        fix = "lower the shares, or give every source one"
        raise RecipeError(
            f"shares of {total:g} leave nothing for the other sources", place=f"sft.files: {name}", fix=fix
        )
    whole = others / (1 - total) if others else sum(sizes[number] for number in asked) / total
    return [
        asked[number] * whole / sizes[number] if number in asked else weight for number, weight in enumerate(weights)
    ]
