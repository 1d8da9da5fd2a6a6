"""Trials side by side: the mean over seeds with its standard error, the best, and what cannot be told from it.

    several seeds    value = mean over seeds, SE^2 = sum (v_s - mean)^2 / (S - 1) / S; two settings differ by Welch's SE
    one seed         the metric's own value and error over its questions; two settings differ by the paired SE of the same ones

A setting is "within one standard error of the best" if the difference is not larger than the standard error of that difference.
The best of many is also the luckiest: its value is likely too good, and only a new measurement says by how much.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ingot.evals.scores.scores import Metric
from ingot.evals.scores.statistics import Estimate, estimate, independent_difference
from ingot.lab.grid import Axis, Trial, written
from ingot.lab.sweep import Outcome, Sweep


@dataclass(frozen=True)
class Setting:
    """The trials of one combination of values: one for each seed."""

    outcomes: tuple[Outcome, ...]

    @property
    def trial(self) -> Trial:
        """The first of them; all have the same values."""
        return self.outcomes[0].trial

    @property
    def metrics(self) -> list[Metric]:
        """What was measured; nothing of trials that failed."""
        return [outcome.metric for outcome in self.outcomes if outcome.metric is not None]

    @property
    def estimate(self) -> Estimate | None:
        """The value and its error: over seeds, or the metric's own. None if all trials failed."""
        metrics = self.metrics
        if len(self.outcomes) == 1 and metrics:
            return metrics[0].estimate
        return estimate([metric.estimate.value for metric in metrics]) if metrics else None

    def size(self, name: str) -> float | None:
        """How much data it saw, the mean over seeds."""
        found = [value for outcome in self.outcomes for key, value in outcome.sizes if key == name]
        return math.fsum(found) / len(found) if found else None

    def minus(self, other: Setting) -> Estimate:
        """The difference of two settings that were measured."""
        if len(self.outcomes) == len(other.outcomes) == 1:
            return self.metrics[0].minus(other.metrics[0])
        here, there = self.estimate, other.estimate
        assert here is not None and there is not None
        return independent_difference(here, there)


@dataclass(frozen=True)
class Comparison:
    """Settings from the best to the worst; those without a result at the end."""

    axes: tuple[Axis, ...]
    settings: tuple[Setting, ...]
    higher_is_better: bool
    complete: bool  # whether every trial has run

    @property
    def best(self) -> Setting | None:
        """The best; None if nothing was measured."""
        return self.settings[0] if self.settings and self.settings[0].metrics else None

    @property
    def close(self) -> list[Setting]:
        """Other settings that are within one standard error of the best."""
        best = self.best
        others = [setting for setting in self.settings[1:] if setting.metrics] if best else []
        return [setting for setting in others if best and not _apart(best.minus(setting))]

    @property
    def failed(self) -> list[Outcome]:
        """The trials that failed."""
        return [outcome for setting in self.settings for outcome in setting.outcomes if outcome.error is not None]


def _apart(difference: Estimate) -> bool:
    """Whether a difference is larger than its standard error; never, if that is not known."""
    return abs(difference.value) > difference.standard_error


def compare(sweep: Sweep, outcomes: Sequence[Outcome]) -> Comparison:
    """The outcomes so far, by setting."""
    groups: dict[tuple[tuple[str, str], ...], list[Outcome]] = {}
    for outcome in outcomes:
        key = tuple((name, written(value)) for name, value in outcome.trial.values)
        groups.setdefault(key, []).append(outcome)
    settings = [Setting(tuple(group)) for group in groups.values()]
    sides = [metric.higher_is_better for setting in settings for metric in setting.metrics]
    higher = sides[0] if sides else True

    def rank(setting: Setting) -> float:
        value = setting.estimate
        return math.inf if value is None else -value.value if higher else value.value

    return Comparison(sweep.axes, tuple(sorted(settings, key=rank)), higher, len(outcomes) == len(sweep.trials))


def notes(comparison: Comparison) -> list[str]:
    """What may be said of the best, in words."""
    best = comparison.best
    if best is None:
        return ["nothing was measured"]
    lines = [f"best: {best.trial.label or 'the recipe as it is'}, {_shown(best)}"]
    if not comparison.complete:
        lines.append("not all trials have run")
    measured = [setting for setting in comparison.settings if setting.metrics]
    if len(measured) > 1:
        differences = [best.minus(setting) for setting in measured[1:]]
        if all(math.isinf(difference.standard_error) for difference in differences):
            lines.append("standard errors are not known, so no difference is certain: add --seeds 1,2,3")
        elif comparison.close:
            lines.append(f"within one standard error of the best: {'; '.join(s.trial.label for s in comparison.close)}")
        else:
            lines.append("no other setting is within one standard error of the best")
    lines += [text for axis in comparison.axes if (text := _edge(axis, comparison)) is not None]
    if len(measured) > 2:
        lines.append(
            f"it is the best of {len(measured)} by this metric, so its value is likely too good: measure it again"
        )
    return lines


def _shown(setting: Setting) -> str:
    found = setting.estimate
    assert found is not None
    many = len(setting.outcomes) > 1
    if math.isinf(found.standard_error):
        return f"{found.value:.4g}" + (" in its only seed that did not fail" if many else "")
    over = f"{found.count} {'seeds' if many else 'questions'}"
    return f"{found.value:.4g} ± {found.standard_error:.2g} (standard error over {over})"


def _edge(axis: Axis, comparison: Comparison) -> str | None:
    """Advice if the best value is the smallest or the largest that was tried, and no other is as good."""
    best = comparison.best
    if best is None or not axis.numeric:
        return None
    value = dict(best.trial.values)[axis.key]
    known = [each for each in comparison.close if math.isfinite(best.minus(each).standard_error)]
    as_good = any(dict(each.trial.values)[axis.key] != value for each in known)
    if as_good or value not in (min(axis.values), max(axis.values)):
        return None
    side, beyond = ("largest", max(axis.values)) if value == max(axis.values) else ("smallest", min(axis.values))
    nearest = sorted(axis.values, key=lambda other: abs(other - beyond))[1]
    following: Any = beyond * beyond / nearest if min(axis.values) > 0 else 2 * beyond - nearest
    if all(isinstance(each, int) for each in axis.values):
        following = round(following)
    if following == beyond:
        return None
    following = following if isinstance(following, int) else float(f"{following:.3g}")
    return f"the best {axis.key} is the {side} that was tried: widen the range, as with {written(following)}"
