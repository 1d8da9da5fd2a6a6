"""Training curves, downsampled for a page without losing spikes, ends and means.

A curve longer than `MOST_POINTS` is cut into equal buckets of its rows, and of each bucket the points with the lowest
and the highest value stay: every spike survives. Extremes alone would bias a smoothed line, so the mean of each bucket
is kept beside them for smoothing. Values that are not finite cannot be drawn; their steps are listed instead of
dropped.

Invariant: first point, last point, global minimum and global maximum of the finite values are always kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, TypeGuard

MOST_POINTS = 600
DIGITS = 6

Point = tuple[float, float | None, float]  # step, tokens seen so far, value


def significant(value: float, digits: int = DIGITS) -> float:
    """The value at `digits` significant digits: shorter in JSON, the same on the screen."""
    return float(f"{value:.{digits}g}")


def tokens_by_row(rows: list[dict[str, Any]]) -> list[float | None]:
    """Tokens seen so far at each row. `tokens` counts all so far; a row without it takes the last known count."""
    known: float | None = None
    result = []
    for row in rows:
        tokens = row.get("tokens")
        if _is_number(tokens) and math.isfinite(tokens):
            known = float(tokens)
        result.append(known)
    return result


def curves(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Every numeric metric of a metrics.jsonl by name, as columns `step`, `tokens`, `value` (see the module)."""
    points: dict[str, list[Point]] = {}
    not_finite: dict[str, list[float]] = {}
    for row, tokens in zip(rows, tokens_by_row(rows), strict=True):
        step = row.get("step")
        if not _is_number(step) or not math.isfinite(step):
            continue
        for name, value in row.items():
            if name in ("step", "tokens") or not _is_number(value):
                continue
            points.setdefault(name, [])
            if math.isfinite(value):
                points[name].append((step, tokens, float(value)))
            else:
                not_finite.setdefault(name, []).append(step)
    return {
        name: _columns(sorted(rows, key=lambda point: point[0]), not_finite.get(name, []))
        for name, rows in points.items()
    }


def downsample(points: list[Point], most: int = MOST_POINTS) -> list[Point]:
    """At most `most` of the points, in order: both ends and the extremes of every bucket."""
    if len(points) <= most:
        return points
    kept = {0, len(points) - 1}
    for bucket in _buckets(len(points), (most - 2) // 2):
        kept.add(min(bucket, key=lambda index: points[index][2]))
        kept.add(max(bucket, key=lambda index: points[index][2]))
    return [points[index] for index in sorted(kept)]


def bucket_means(points: list[Point], most: int = MOST_POINTS) -> list[Point]:
    """The mean step, last token count and mean value of each bucket; empty when nothing was cut."""
    if len(points) <= most:
        return []
    means = []
    for bucket in _buckets(len(points), (most - 2) // 2):
        chosen = [points[index] for index in bucket]
        steps, values = [point[0] for point in chosen], [point[2] for point in chosen]
        means.append((sum(steps) / len(steps), chosen[-1][1], sum(values) / len(values)))
    return means


def _buckets(length: int, count: int) -> Iterable[range]:
    for index in range(count):
        yield range(length * index // count, length * (index + 1) // count)


def _columns(points: list[Point], not_finite: list[float]) -> dict[str, Any]:
    result = _table(downsample(points)) | {"count": len(points) + len(not_finite)}
    if means := bucket_means(points):
        result["means"] = _table(means)
    if not_finite:
        result["not_finite"] = not_finite[:MOST_POINTS]
    return result


def _table(points: list[Point]) -> dict[str, Any]:
    columns: dict[str, Any] = {"step": [_short(step) for step, _, _ in points]}
    if any(tokens is not None for _, tokens, _ in points):
        columns["tokens"] = [None if tokens is None else round(tokens) for _, tokens, _ in points]
    columns["value"] = [_short(value) for _, _, value in points]
    return columns


def _short(value: float) -> float:
    """Whole numbers without a decimal point (a step must not be rounded), others at a few digits."""
    return int(value) if float(value).is_integer() and abs(value) < 2**53 else significant(value)


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
