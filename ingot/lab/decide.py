"""Decides between a baseline and its interventions by their runs: difference, interval, p-value, verdict. It knows only numbers.

    same data for a seed     d_s = arm_s - baseline_s over the seeds that both have; Student's t with n - 1 degrees (paired)
    other data               Welch's difference of the two means

p-values are two-sided and corrected by Holm's method over all differences of the table, so that a table in which nothing
differs has a false alarm with a chance of at most `level`. Intervals are not corrected. A verdict:

    adopt         certainly better in some metric, certainly worse in none, and no sign that the gain is too small to be worth
                  having
    reject        certainly worse in some metric and better in none; or its gain is shown to be below what is `worth` having
    cannot tell   everything else: below the noise nothing is ranked
    pruned        a run was given up; what is left would be a choice of lucky seeds, so nothing is tested

An arm with a failed or missing run is never adopted.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ingot.evals.scores.power import difference_shown, runs_needed
from ingot.evals.scores.signal import Signal
from ingot.evals.scores.statistics import Estimate, estimate, holm, independent_difference

Kind = Literal["adopt", "reject", "cannot tell", "pruned"]
BySeed = Mapping[int, float]


@dataclass(frozen=True)
class MetricValues:
    """A metric of all arms: by arm and seed, the baseline first."""

    name: str
    label: str
    higher_is_better: bool
    arms: Mapping[str, BySeed]
    signal: Signal | None = None  # of the baseline's runs, where its history is known

    @property
    def can_tell(self) -> bool:
        """Whether the metric says anything at this size: not if it is at chance or does not move with training."""
        return self.signal is None or self.signal.kind != "blind"


@dataclass(frozen=True)
class ArmState:
    """What is known of an arm besides its values."""

    name: str
    paired: bool
    seeds: Sequence[int]  # it should have
    failed: Sequence[int] = ()
    pruned: Sequence[int] = ()


@dataclass(frozen=True)
class MetricNoise:
    """How much a metric differs between runs of the baseline that differ in nothing but their seed."""

    metric: str
    mean: float
    deviation: float | None  # None: fewer than two seeds
    seeds: int
    shown: float | None  # the smallest difference that so many unpaired runs show four times in five

    @property
    def share(self) -> float | None:
        """The deviation as a share of the value."""
        return None if self.deviation is None or not self.mean else self.deviation / abs(self.mean)


@dataclass(frozen=True)
class Difference:
    """An arm less the baseline in one metric."""

    metric: str
    estimate: Estimate
    paired: bool
    base: float  # the baseline's mean
    sign: int  # 1 where more is better
    p_value: float
    corrected: float
    tested: bool  # False: the metric is blind, or there are too few runs
    more_seeds: int | None = (
        None  # runs of each recipe that would show a difference of this size; None: over a thousand
    )

    @property
    def gain(self) -> float | None:
        """The improvement as a share of the baseline: positive is better."""
        return self.sign * self.estimate.value / abs(self.base) if self.base else None

    @property
    def gain_interval(self) -> tuple[float, float] | None:
        """The interval of the gain, the baseline's mean taken as it is."""
        if not self.base:
            return None
        low, high = sorted(self.sign * end / abs(self.base) for end in self.estimate.interval())
        return low, high

    def certain(self, level: float) -> bool:
        """Whether chance alone would rarely do this in a table of this size."""
        return self.tested and self.corrected < level


@dataclass(frozen=True)
class Decision:
    """What may be said of an arm."""

    arm: str
    kind: Kind
    why: str
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True)
class Decisions:
    """The table: the noise of each metric, and a decision for each arm but the baseline."""

    noise: tuple[MetricNoise, ...]
    decisions: tuple[Decision, ...]
    tests: int = field(default=0)  # differences that were tested together


def decide(
    metrics: Sequence[MetricValues], arms: Sequence[ArmState], *, level: float = 0.05, worth: float = 0.0
) -> Decisions:
    """The decisions of all arms; the first of `arms` is the baseline."""
    baseline, *others = arms
    found = {arm.name: [_difference(metric, baseline, arm) for metric in metrics] for arm in others if not arm.pruned}
    p_values = {
        f"{name} {number}": one.p_value
        for name, row in found.items()
        for number, one in enumerate(row)
        if one is not None and one.tested
    }
    corrected = holm(p_values)
    decisions = []
    for arm in others:
        row = [
            replace(
                one,
                corrected=corrected.get(f"{arm.name} {number}", 1.0),
                more_seeds=_more_seeds(one, level / max(1, len(p_values))),
            )
            for number, one in enumerate(found.get(arm.name, ()))
            if one is not None
        ]
        kind, why = _verdict(baseline, arm, row, metrics, level, worth)
        decisions.append(Decision(arm.name, kind, why, tuple(row)))
    return Decisions(tuple(_noise(metric, baseline.name) for metric in metrics), tuple(decisions), len(p_values))


def _difference(metric: MetricValues, baseline: ArmState, arm: ArmState) -> Difference | None:
    here, there = metric.arms.get(arm.name, {}), metric.arms.get(baseline.name, {})
    if not here or not there:
        return None
    shared = [seed for seed in there if seed in here]
    paired = arm.paired and len(shared) > 1
    if paired:
        found = estimate([here[seed] - there[seed] for seed in shared])
    else:
        found = independent_difference(estimate(list(here.values())), estimate(list(there.values())))
    p_value = found.p_value()
    tested = metric.can_tell and min(len(here), len(there)) > 1
    base = statistics.fmean(there.values())
    return Difference(metric.name, found, paired, base, 1 if metric.higher_is_better else -1, p_value, p_value, tested)


def _more_seeds(one: Difference, level: float) -> int | None:
    """Planned at Bonferroni's level, which no step of Holm's is below."""
    if not one.tested:
        return None
    count = one.estimate.count
    deviation = one.estimate.standard_error * (count if one.paired else count / 2) ** 0.5
    return runs_needed(one.estimate.value, deviation, paired=one.paired, level=level)


def _noise(metric: MetricValues, baseline: str) -> MetricNoise:
    values = list(metric.arms.get(baseline, {}).values())
    mean = statistics.fmean(values) if values else float("nan")
    if len(values) < 2:
        return MetricNoise(metric.name, mean, None, len(values), None)
    deviation = statistics.stdev(values)
    return MetricNoise(
        metric.name, mean, deviation, len(values), difference_shown(deviation, len(values), paired=False)
    )


def _verdict(
    baseline: ArmState,
    arm: ArmState,
    row: Sequence[Difference],
    metrics: Sequence[MetricValues],
    level: float,
    worth: float,
) -> tuple[Kind, str]:
    if arm.pruned:
        return "pruned", f"given up with seed {_listed(arm.pruned)}: not tested"
    if not row:
        return "cannot tell", "nothing was measured" if arm.failed else "not run yet"
    blind = [metric.name for metric in metrics if not metric.can_tell]
    if blind and len(blind) == len(metrics):
        return "cannot tell", f"{', '.join(blind)} says nothing at this size"
    if not any(one.tested for one in row):
        return "cannot tell", "fewer than two seeds on a side"
    first = next(one for one in row if one.tested)
    better = [one.metric for one in row if one.certain(level) and one.sign * one.estimate.value > 0]
    worse = [one.metric for one in row if one.certain(level) and one.sign * one.estimate.value < 0]
    missing = [seed for seed in arm.seeds if seed not in arm.failed and seed not in _measured(arm, metrics)]
    if better and worse:
        return "cannot tell", f"better at {', '.join(better)}, worse at {', '.join(worse)}: a trade that you decide"
    if worse:
        return "reject", f"worse at {', '.join(worse)}"
    most = first.gain_interval
    if worth and most is not None and most[1] < worth:
        return "reject", f"the gain is at most {most[1]:+.2%}, and {worth:.2%} is worth having"
    if better and arm.failed:
        return "cannot tell", f"better at {', '.join(better)}, but seed {_listed(arm.failed)} failed"
    if better and (missing or set(baseline.seeds) - _measured(baseline, metrics)):
        return "cannot tell", f"better at {', '.join(better)} so far, but not all runs are there"
    if better:
        return "adopt", f"better at {', '.join(better)}"
    return "cannot tell", _below_noise(first)


def _below_noise(one: Difference) -> str:
    if one.more_seeds is None:
        return "a difference of this size is below the noise of a thousand seeds"
    return f"below the noise: {one.more_seeds} seeds of each would show a difference of this size 4 times in 5"


def _measured(arm: ArmState, metrics: Sequence[MetricValues]) -> set[int]:
    return set.intersection(*(set(metric.arms.get(arm.name, {})) for metric in metrics))


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))
