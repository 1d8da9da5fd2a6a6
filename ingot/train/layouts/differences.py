"""Compares the numbers of several ranks with those of one process.

number    |a − b| / max(1, |b|)        tensor    ‖a − b‖ / ‖b‖            the largest of a kind counts

A loss far below 1 is a difference of numbers about 1, which float32 rounds: it is compared as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ingot.workspace.errors import CheckFailed

KINDS = ("values", "gradients", "weights", "buffers")


def find_differences(
    ranks: Sequence[Mapping[str, Any]], alone: Mapping[str, Any], *, same_bits: bool = True
) -> dict[str, float]:
    """The largest difference of each kind between all ranks together and one process.

    What several ranks have must be the same bits on all. Without `same_bits` (a GPU sums with atomic additions, in no order)
    how far they are apart counts as a difference.
    """
    worst = compare_numbers(join_ranks(ranks, same_bits), alone)
    for rank in ranks if not same_bits else ():
        apart = compare_numbers(join_ranks([rank], same_bits), alone, of_one_rank=True)
        worst = {kind: max(worst[kind], apart[kind]) for kind in KINDS}
    return worst


def join_ranks(ranks: Sequence[Mapping[str, Any]], same_bits: bool = True) -> dict[str, Any]:
    """The numbers of all ranks together."""
    steps = range(len(ranks[0]["values"]))
    joined: dict[str, Any] = {kind: [{} for _ in steps] for kind in ("values", "gradients")}
    joined |= {"weights": {}, "buffers": {}}
    for number, rank in enumerate(ranks):
        if any(rank["values"][step].keys() != ranks[0]["values"][step].keys() for step in steps):
            raise CheckFailed(f"rank {number} logs other names than the first")
        for kind, into, found in _pairs(joined, rank):
            for name, value in found.items():
                if same_bits and name in into and not np.array_equal(value, into[name]):
                    raise CheckFailed(f"rank {number} has other {kind} of {name} than a rank before it")
                into[name] = value
    return joined


def compare_numbers(
    found: Mapping[str, Any], expected: Mapping[str, Any], *, of_one_rank: bool = False
) -> dict[str, float]:
    """The largest relative difference of each kind; one rank of a pipeline has only its own layers' numbers."""
    worst = dict.fromkeys(KINDS, 0.0)
    for kind, one, other in _pairs(found, expected):
        if one.keys() != other.keys() and not of_one_rank:
            raise CheckFailed(f"{kind} of other names: {', '.join(sorted(one.keys() ^ other.keys()))}")
        for name, value in one.items():
            worst[kind] = max(worst[kind], _relative(kind, name, value, other[name]))
    return worst


def _pairs(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """What the two have of every kind, step by step where there are several."""
    for kind in KINDS:
        if isinstance(one[kind], list):
            yield from ((kind, *pair) for pair in zip(one[kind], other[kind], strict=True))
        else:
            yield kind, one[kind], other[kind]


def _relative(kind: str, name: str, found: Any, expected: Any) -> float:
    a, b = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    if a.shape != b.shape:
        raise CheckFailed(f"{kind} of {name}: {a.shape}, not {b.shape}")
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise CheckFailed(f"{kind} of {name} are not finite")
    size = max(float(np.linalg.norm(b)), 1.0 if b.ndim == 0 else 0.0)
    return float(np.linalg.norm(a - b)) / (size if size > 0 else 1.0)
