"""Rank correlations: does a score rise with training, and are models ordered the same way later, or when they are larger?

    Spearman's rho     Pearson's correlation of the ranks; ties share their mean rank
    Kendall's tau-b    (concordant - discordant pairs) / sqrt(pairs not tied in x * pairs not tied in y)
    decision accuracy  share of pairs of models that a small experiment orders as the large one does (signal and noise,
                       arXiv 2508.13144; a coin gets one half)

A correlation with something that never changes is not defined: None.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations


def pearson(x: Sequence[float], y: Sequence[float]) -> float | None:
    """The correlation of two sequences."""
    if len(x) != len(y):
        raise ValueError("a correlation needs two sequences of the same length")
    if len(x) < 2:
        return None
    mean_x, mean_y = math.fsum(x) / len(x), math.fsum(y) / len(y)
    both = math.fsum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    squares = math.fsum((a - mean_x) ** 2 for a in x), math.fsum((b - mean_y) ** 2 for b in y)
    return both / math.sqrt(squares[0] * squares[1]) if min(squares) > 0 else None


def ranks(values: Sequence[float]) -> list[float]:
    """The rank of each value, from 1; equal values share their mean rank."""
    order = sorted(range(len(values)), key=lambda place: values[place])
    found = [0.0] * len(values)
    first = 0
    while first < len(order):
        last = first
        while last + 1 < len(order) and values[order[last + 1]] == values[order[first]]:
            last += 1
        for place in order[first : last + 1]:
            found[place] = (first + last) / 2 + 1
        first = last + 1
    return found


def spearman(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Spearman's rank correlation."""
    return pearson(ranks(x), ranks(y))


def kendall(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Kendall's tau-b."""
    if len(x) != len(y):
        raise ValueError("a correlation needs two sequences of the same length")
    signs = [(_sign(x[i] - x[j]), _sign(y[i] - y[j])) for i, j in combinations(range(len(x)), 2)]
    differ = math.prod(sum(pair[side] != 0 for pair in signs) for side in (0, 1))
    return sum(a * b for a, b in signs) / math.sqrt(differ) if differ else None


def decision_accuracy(small: Mapping[str, float], large: Mapping[str, float]) -> float | None:
    """The share of pairs of models, among those in both, that are ordered the same way."""
    names = [name for name in small if name in large]
    same = [_sign(small[a] - small[b]) == _sign(large[a] - large[b]) for a, b in combinations(names, 2)]
    return sum(same) / len(same) if same else None


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)
