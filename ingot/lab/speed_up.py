"""The effective speed-up of an intervention: how much less compute the baseline would need to get as far.

    y = a + b ln C                        the baseline's metric over its compute, between two lengths that were trained to their
                                          end
    r = (y_arm - y_C) / b                 in ln C: how much further along its curve the baseline would have to be
    speed-up = C exp(r) / C_arm           1.2: the baseline needs 20 % more compute

r is a ratio of two means over seeds, so its interval is Fieller's, with Student's t (ratio.py). The two lengths are those
between which the arm's value lies; beyond the longest one the line is drawn on, which a curve that flattens makes too small a
speed-up of a gain. Runs of different lengths are each trained to the end of their own schedule: a point in the middle of a run,
whose rate has not decayed yet, says nothing of where a shorter run would have ended.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ingot.evals.scores.ratio import Ratio, covariance, mean, paired_ratio

LARGEST = 50.0  # of |r|: beyond e^50 a speed-up is no number to print


@dataclass(frozen=True)
class CurvePoint:
    """A length of the baseline: its compute, and the metric by seed."""

    compute: float
    values: Mapping[int, float]


@dataclass(frozen=True)
class SpeedUp:
    """How many times less compute, and the interval; unbounded ends where the seeds do not say."""

    value: float
    low: float
    high: float
    extrapolated: bool  # beyond the lengths that were trained


def speed_up(
    curve: Sequence[CurvePoint], values: Mapping[int, float], compute: float, *, paired: bool, higher_is_better: bool
) -> SpeedUp | None:
    """The speed-up of an arm with these values at this compute; None where two lengths or two seeds are missing."""
    sign = -1 if higher_is_better else 1  # less is better from here on
    points = sorted((point for point in curve if len(point.values) > 1), key=lambda point: point.compute)
    if len(points) < 2 or len(values) < 2:
        return None
    reached = sign * mean(list(values.values()))
    levels = [sign * mean(list(point.values.values())) for point in points]
    further = sum(level > reached for level in levels)  # lengths that the arm is better than
    left = min(max(further - 1, 0), len(points) - 2)
    start, end = points[left], points[left + 1]
    anchor = end if further > left + 1 else start
    width = math.log(end.compute / start.compute)
    both = [seed for seed in start.values if seed in end.values]
    shared = [seed for seed in both if seed in values]
    if paired and len(shared) > 1:
        ratio = paired_ratio(
            [values[seed] - anchor.values[seed] for seed in shared],
            [(end.values[seed] - start.values[seed]) / width for seed in shared],
        )
    elif len(both) > 1:
        ratio = _unpaired(
            list(values.values()),
            [anchor.values[seed] for seed in both],
            [(end.values[seed] - start.values[seed]) / width for seed in both],
        )
    else:
        return None
    if not ratio.below:
        return None
    low, high = ratio.interval()
    scale = anchor.compute / compute
    return SpeedUp(scale * _exp(ratio.value), scale * _exp(low), scale * _exp(high), further in (0, len(points)))


def _unpaired(own: Sequence[float], anchor: Sequence[float], slope: Sequence[float]) -> Ratio:
    """The arm's seeds are other runs than the baseline's; the fewer of the two give the degrees of freedom."""
    return Ratio(
        mean(own) - mean(anchor),
        mean(slope),
        covariance(own, own) + covariance(anchor, anchor),
        covariance(slope, slope),
        -covariance(anchor, slope),
        min(len(own), len(anchor)) - 1,
    )


def _exp(value: float) -> float:
    return math.exp(value) if abs(value) <= LARGEST else math.inf if value > 0 else 0.0
