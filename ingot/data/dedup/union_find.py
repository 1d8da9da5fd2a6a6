"""Connected components by union-find: pairs in, the smallest member of each one's component out."""

from __future__ import annotations

import numpy as np

from ingot.data.native import kernel
from ingot.data.text.arrays import Offsets


@kernel
def find(parent: Offsets, item: int) -> int:
    """The root of the set that `item` is in; the path is halved on the way."""
    while parent[item] != item:
        parent[item] = parent[parent[item]]
        item = int(parent[item])
    return item


@kernel
def union(parent: Offsets, first: int, second: int) -> None:
    """Join the sets of two items; the smaller root stays a root."""
    first, second = find(parent, first), find(parent, second)
    parent[max(first, second)] = min(first, second)


@kernel
def flatten(parent: Offsets) -> None:
    """Make every item point to its root."""
    for item in range(len(parent)):
        parent[item] = find(parent, item)


@kernel
def _join_all(parent: Offsets, firsts: Offsets, seconds: Offsets) -> None:
    for index in range(len(firsts)):
        union(parent, firsts[index], seconds[index])
    flatten(parent)


def components(firsts: Offsets, seconds: Offsets, count: int) -> Offsets:
    """For each of 0 … count-1 the smallest item of its component under the given pairs."""
    parent = np.arange(count, dtype=np.int64)
    _join_all(parent, firsts, seconds)
    return parent
