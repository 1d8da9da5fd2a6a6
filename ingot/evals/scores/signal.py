"""How much a metric can be trusted at this size of model: its signal, from scores of several steps, seeds and models.

    monotonic      mean over runs of Spearman's correlation of step and score         >= 0.5          FineTasks
    above chance   best score less chance, in units of the noise                      >= 3            FineTasks
    seeds          mean / standard deviation over seeds, at the last step             > 20            FineTasks
    noise          standard deviation of the last checkpoints of a run (n, not n - 1)                 signal and noise
    spread         (largest - smallest model) / mean, over noise / mean               > 1             signal and noise
    ordering       mean Kendall's tau of the models' order between consecutive steps  > 0             FineTasks
    rise           best score less first score of a run, in units of the noise        >= 3            ours
    jitter         sqrt(sum of (s_(i+1) - 2 s_i + s_(i-1))^2 / 6 (n - 2)), of the last checkpoints    ours: noise without trend

FineTasks is Hugging Face's study of which tasks to train by; signal and noise is arXiv 2508.13144, which gives no limit: at a
ratio of 1 checkpoints of one model differ as much as models. Nothing is asked of what a history lacks (a second seed, a second
model). The class:

    blind    it does not rise with training, or is not above chance: says nothing at this size
    noisy    it rises, but noise is too large to choose between two models by it
    stable   neither

The noise of "rise" is the larger of jitter and the deviation over seeds; a run that still improves scatters by that alone. That
of "above chance" is also not below the standard error of the score, which "rise" leaves out: the questions are the same at every
step. A metric of generated answers is exempt from "seeds", as in FineTasks.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any, Literal

from ingot.evals.scores.ranking import kendall, spearman

LAST = 5  # checkpoints at the end of a run, for its noise
FEWEST = 3  # steps that a class can be told from
MONOTONIC, ABOVE_CHANCE, SEEDS, SPREAD, ORDERING, RISE = 0.5, 3.0, 20.0, 1.0, 0.0, 3.0
ROUNDING = 1e-12  # scatter of nothing but rounding

Class = Literal["stable", "noisy", "blind", "unknown"]


@dataclass(frozen=True)
class MetricRun:
    """A metric over the steps of one training run."""

    model: str
    seed: int
    scores: Mapping[int, float]


@dataclass(frozen=True)
class MetricHistory:
    """All that is known of a metric at one size of model."""

    metric: str
    runs: Sequence[MetricRun]
    chance: float | None = None
    standard_error: float | None = None  # of one score
    higher_is_better: bool = True
    generated: bool = False  # scored on answers that a model wrote


@dataclass(frozen=True)
class Signal:
    """What a history shows. A number that the history is too small for is None."""

    metric: str
    kind: Class
    reasons: tuple[str, ...]
    monotonic: float | None = None
    noise: float | None = None
    jitter: float | None = None
    seed_noise: float | None = None
    seeds: float | None = None
    above_chance: float | None = None
    spread: float | None = None
    ordering: float | None = None
    rise: float | None = None

    def as_json(self) -> dict[str, Any]:
        """Plain data; what is infinite (no noise at all) is null."""
        plain = asdict(self) | {"reasons": list(self.reasons)}
        return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in plain.items()}


@dataclass(frozen=True)
class _Found:
    """Reasons, by what they make of the metric."""

    blind: list[str] = field(default_factory=list)
    noisy: list[str] = field(default_factory=list)
    good: list[str] = field(default_factory=list)

    def judge(self, value: float | None, enough: bool, otherwise: list[str], text: str) -> None:
        if value is not None:
            (self.good if enough else otherwise).append(text)


def signal(history: MetricHistory) -> Signal:
    """The signal of a metric, its class, and the reasons."""
    runs = [_oriented(run, history.higher_is_better) for run in history.runs]
    if max((len(run.scores) for run in runs), default=0) < FEWEST:
        return Signal(history.metric, "unknown", (f"fewer than {FEWEST} steps are measured",))
    monotonic = _mean([_monotonic(run) for run in runs])
    noise, jitter = _mean([last_noise(run) for run in runs]), _mean([last_jitter(run) for run in runs])
    seed_noise, seeds = _over_seeds(runs)
    scatter = max(jitter or 0.0, seed_noise or 0.0)
    error = history.standard_error if history.standard_error is not None else 0.0
    best = max(max(run.scores.values()) for run in runs)
    chance = None if history.chance is None else (1 if history.higher_is_better else -1) * history.chance
    above = None if chance is None else _ratio(best - chance, max(scatter, error if math.isfinite(error) else 0.0))
    rise = _ratio(_mean([max(r.scores.values()) - r.scores[min(r.scores)] for r in runs]) or 0.0, scatter)
    spread, ordering = signal_to_noise(runs), order_stability(runs)

    found = _Found()
    found.judge(
        monotonic, (monotonic or 0) >= MONOTONIC, found.blind, f"Spearman of step and score {monotonic or 0:.2f}"
    )
    found.judge(above, (above or 0) >= ABOVE_CHANCE, found.blind, f"best is {above or 0:.1f} noise above chance")
    found.judge(rise, (rise or 0) >= RISE, found.noisy, f"rises by {rise or 0:.1f} noise")
    if not history.generated:
        found.judge(seeds, (seeds or 0) > SEEDS, found.noisy, f"mean over deviation of seeds {seeds or 0:.0f}")
    found.judge(spread, (spread or 0) > SPREAD, found.noisy, f"spread of models over noise {spread or 0:.1f}")
    found.judge(
        ordering, (ordering or 0) > ORDERING, found.noisy, f"Kendall's tau of models' order {ordering or 0:.2f}"
    )
    kind: Class = "blind" if found.blind else "noisy" if found.noisy else "stable"
    reasons = found.blind or found.noisy or found.good
    return Signal(
        history.metric, kind, tuple(reasons), monotonic, noise, jitter, seed_noise, seeds, above, spread, ordering, rise
    )


def last_noise(run: MetricRun) -> float | None:
    """The standard deviation (n) of the last checkpoints of a run."""
    last = _last(run)
    return statistics.pstdev(last) if len(last) > 1 else None


def last_jitter(run: MetricRun) -> float | None:
    """The noise of the last checkpoints without their trend: second differences know no straight line."""
    last = _last(run)
    bends = [c - 2 * b + a for a, b, c in zip(last, last[1:], last[2:], strict=False)]
    return math.sqrt(math.fsum(bend * bend for bend in bends) / (6 * len(bends))) if bends else None


def signal_to_noise(runs: Sequence[MetricRun]) -> float | None:
    """The ratio of relative spread over models and relative noise of a model; None for one model.

    A model's score is the mean of its last checkpoints, its noise that of its last checkpoints, averaged over runs.
    """
    ends: dict[str, list[float]] = {}
    for run in runs:
        ends.setdefault(run.model, []).append(_end(run))
    noises = [each for each in map(last_noise, runs) if each is not None]
    if len(ends) < 2 or not noises:
        return None
    scores = [statistics.fmean(values) for values in ends.values()]
    return _ratio(max(scores) - min(scores), statistics.fmean(noises))  # both over the same mean, which cancels


def order_stability(runs: Sequence[MetricRun]) -> float | None:
    """The mean of Kendall's tau between the orders of the models at consecutive steps; None for fewer than two models."""
    scores: dict[int, dict[str, list[float]]] = {}
    for run in runs:
        for step, value in run.scores.items():
            scores.setdefault(step, {}).setdefault(run.model, []).append(value)
    models = {run.model for run in runs}
    whole = [step for step in sorted(scores) if scores[step].keys() == models]
    orders = [[statistics.fmean(scores[step][model]) for model in sorted(models)] for step in whole]
    return _mean([kendall(before, after) for before, after in pairwise(orders)])


def _over_seeds(runs: Sequence[MetricRun]) -> tuple[float | None, float | None]:
    """The standard deviation over seeds at the last step that all seeds of a model have, and mean over it; means over models."""
    noises, ratios = [], []
    for model in {run.model: None for run in runs}:
        same = [run for run in runs if run.model == model]
        shared = set.intersection(*(set(run.scores) for run in same))
        if len(same) > 1 and shared:
            values = [run.scores[max(shared)] for run in same]
            noises.append(statistics.stdev(values))
            ratios.append(_ratio(abs(statistics.fmean(values)), noises[-1]))
    return _mean(noises), _mean(ratios)


def _monotonic(run: MetricRun) -> float | None:
    steps = sorted(run.scores)
    return spearman(steps, [run.scores[step] for step in steps]) or 0.0 if len(steps) >= FEWEST else None


def _oriented(run: MetricRun, higher_is_better: bool) -> MetricRun:
    return (
        run
        if higher_is_better
        else MetricRun(run.model, run.seed, {step: -value for step, value in run.scores.items()})
    )


def _end(run: MetricRun) -> float:
    return statistics.fmean(_last(run))


def _last(run: MetricRun) -> list[float]:
    return [run.scores[step] for step in sorted(run.scores)][-LAST:]


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _ratio(value: float, noise: float) -> float:
    if noise > ROUNDING:
        return value / noise
    return math.inf if value > ROUNDING else 0.0
