"""What the runs of an ablation say: values, costs, decisions, speed-ups and optima, read from the folders of finished stages.

Throughput and memory are those that the measured stage wrote while it trained: the median of the second half of its steps, and
the most. With several runs side by side they share the machine, and throughput compares only runs that shared it alike.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingot.evals.scores.history import history_of, read_history
from ingot.evals.scores.scores import Metric
from ingot.evals.scores.signal import MetricHistory, MetricRun, Signal, signal
from ingot.lab.ablation import Ablation, Arm, LabRun
from ingot.lab.ablation_config import BASELINE
from ingot.lab.decide import ArmState, Decisions, MetricValues, decide
from ingot.lab.optimum import Optimum, fit_optimum
from ingot.lab.speed_up import CurvePoint, SpeedUp, speed_up
from ingot.lab.state import LabState
from ingot.lab.target import Target, measure
from ingot.planner.cost import Cost, stage_costs
from ingot.recipe.flow import RunResult
from ingot.recipe.record import make_results
from ingot.workspace.errors import CheckFailed
from ingot.workspace.metrics import MetricsLog, metric_by_step


@dataclass(frozen=True)
class RunFinding:
    """A run as it stands."""

    run: LabRun
    status: str  # done, failed, pruned, not run
    folder: Path
    metrics: Mapping[str, Metric]
    metrics_file: Path | None = None  # of the measured stage
    seconds: float = 0.0
    tokens_per_second: float | None = None
    memory_gib: float | None = None
    error: str = ""


@dataclass(frozen=True)
class ArmFinding:
    """What an arm costs, beside what it is worth."""

    arm: Arm
    parameters: int | None
    flops: int | None
    tokens_per_second: float | None
    memory_gib: float | None
    speed_up: SpeedUp | None = None


@dataclass(frozen=True)
class Findings:
    """All that an ablation found so far."""

    ablation: Ablation
    runs: tuple[RunFinding, ...]
    arms: tuple[ArmFinding, ...]  # the baseline first
    metrics: tuple[MetricValues, ...]
    decisions: Decisions
    optima: Mapping[str, Optimum | None]  # by intervention with numbers as values
    state: LabState

    @property
    def complete(self) -> bool:
        """Whether every run has a result or was given up."""
        return all(run.status in ("done", "pruned") for run in self.runs)

    @property
    def failed(self) -> list[RunFinding]:
        """The runs that failed."""
        return [run for run in self.runs if run.status == "failed"]


def find(ablation: Ablation, runs: Path, state: LabState) -> Findings:
    """Read everything that is finished, and judge it."""
    found = tuple(_finding(ablation, run, runs, state) for run in ablation.runs)
    metrics = tuple(_values(ablation, target, found, runs) for target in ablation.targets)
    states = [_state(ablation, arm, found) for arm in ablation.arms]
    decisions = decide(metrics, states, level=ablation.config.level, worth=ablation.config.worth)
    costs = {arm.name: _cost(ablation, arm) for arm in (*ablation.arms, *ablation.lengths)}
    curve = [
        CurvePoint(_compute(ablation, arm, costs[arm.name]), metrics[0].arms.get(arm.name, {}))
        for arm in (ablation.arms[0], *ablation.lengths)
    ]
    arms = tuple(_arm(ablation, arm, found, costs[arm.name], curve, metrics[0]) for arm in ablation.arms)
    return Findings(ablation, found, arms, metrics, decisions, _optima(ablation, metrics[0]), state)


def _finding(ablation: Ablation, run: LabRun, runs: Path, state: LabState) -> RunFinding:
    folder, works = ablation.folder(runs) / run.name, ablation.works(run, runs)
    if run.name in state.pruned:
        return RunFinding(run, "pruned", folder, {}, error=state.pruned[run.name])
    if any(work.done is None for work in works):
        error = state.failed.get(run.name, "")
        return RunFinding(run, "failed" if error else "not run", folder, {}, error=error)
    result = RunResult(run.recipe.name, folder, tuple(make_results(works)))
    try:
        metrics = {target.metric: measure(target, result) for target in ablation.targets}
    except CheckFailed as error:  # a metric that is no number: the run diverged and nothing stopped it
        return RunFinding(run, "failed", folder, {}, error=str(error))
    path = _stage_folder(ablation, run, runs) / "metrics.jsonl"
    rows = MetricsLog(path).read()
    rates = _numbers(rows[len(rows) // 2 :], "tokens_per_second")
    return RunFinding(
        run,
        "done",
        folder,
        metrics,
        path,
        sum(
            work.done.seconds
            for work in works
            if work.done is not None and work.stage.name == ablation.targets[0].stage
        ),
        statistics.median(rates) if rates else None,
        max(_numbers(rows, "memory_gib"), default=None),
    )


def _numbers(rows: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    return [float(row[name]) for row in rows if isinstance(row.get(name), int | float)]


def _stage_folder(ablation: Ablation, run: LabRun, runs: Path) -> Path:
    return next(work.folder for work in ablation.works(run, runs) if work.stage.name == ablation.targets[0].stage)


def _values(ablation: Ablation, target: Target, found: Sequence[RunFinding], runs: Path) -> MetricValues:
    arms: dict[str, dict[int, float]] = {}
    for each in found:
        if target.metric in each.metrics:
            values = arms.setdefault(each.run.arm.name, {})
            values[each.run.seed] = each.metrics[target.metric].estimate.value
    known = [each.metrics[target.metric] for each in found if target.metric in each.metrics]
    higher = known[0].higher_is_better if known else target.best == "max"
    label = known[0].label if known else target.metric
    heard = _signal(ablation, target, found, runs, known[0]) if known else None
    return MetricValues(target.metric, label, higher, arms, heard)


def _signal(
    ablation: Ablation, target: Target, found: Sequence[RunFinding], runs: Path, metric: Metric
) -> Signal | None:
    """What the baseline's runs say of the metric: from a history of scores, else from the curve of the stage itself."""
    base = [each for each in found if each.run.arm.name == BASELINE and each.status == "done"]
    histories = {}
    for each in base:
        folders = {work.stage.name: work.folder for work in ablation.works(each.run, runs)}
        rows = [row for name in target.measured_by for row in read_history(folders[name])]
        if rows:
            histories[BASELINE, each.run.seed] = rows
    if histories:
        return signal(history_of(metric, histories))
    curves = [
        MetricRun(BASELINE, each.run.seed, scores)
        for each in base
        if (scores := metric_by_step(_stage_folder(ablation, each.run, runs), target.metric))
    ]
    if not curves:
        return _without_history(metric, base, target)
    return signal(MetricHistory(metric.name, curves, metric.chance, higher_is_better=metric.higher_is_better))


def _without_history(metric: Metric, base: Sequence[RunFinding], target: Target) -> Signal | None:
    """A metric that is known only at the end: blind if it is not above chance by three times its error."""
    if metric.chance is None:
        return None
    sign = 1 if metric.higher_is_better else -1
    above = statistics.fmean(sign * (each.metrics[target.metric].estimate.value - metric.chance) for each in base)
    error = metric.estimate.standard_error
    if above >= 3 * error:
        return Signal(
            metric.name, "unknown", (f"{above / error if error else above:.1f} errors above chance; no history",)
        )
    return Signal(metric.name, "blind", (f"{above / error:.1f} errors above chance",))


def _state(ablation: Ablation, arm: Arm, found: Sequence[RunFinding]) -> ArmState:
    own = [each for each in found if each.run.arm is arm]
    failed = [each.run.seed for each in own if each.status == "failed"]
    pruned = [each.run.seed for each in own if each.status == "pruned"]
    return ArmState(arm.name, arm.paired, ablation.config.all_seeds, failed, pruned)


def _cost(ablation: Ablation, arm: Arm) -> Cost:
    run = next(run for run in ablation.runs if run.arm is arm)
    return stage_costs(run.recipe, look=True, table=ablation.table).get(ablation.targets[0].stage, Cost())


def _compute(ablation: Ablation, arm: Arm, cost: Cost) -> float:
    """FLOPs; steps where these are not known in advance."""
    if cost.flops is not None:
        return float(cost.flops)
    run = next(run for run in ablation.runs if run.arm is arm)
    config: Any = run.recipe.stage(ablation.targets[0].stage).config
    return float(getattr(config, "steps", 1) or 1)


def _arm(
    ablation: Ablation,
    arm: Arm,
    found: Sequence[RunFinding],
    cost: Cost,
    curve: Sequence[CurvePoint],
    metric: MetricValues,
) -> ArmFinding:
    done = [each for each in found if each.run.arm is arm and each.status == "done"]
    rates = [each.tokens_per_second for each in done if each.tokens_per_second is not None]
    memory = [each.memory_gib for each in done if each.memory_gib is not None]
    pruned = any(each.status == "pruned" for each in found if each.run.arm is arm)
    faster = None
    if arm.name != BASELINE and not pruned and metric.can_tell:
        values = metric.arms.get(arm.name, {})
        compute = _compute(ablation, arm, cost)
        faster = speed_up(curve, values, compute, paired=arm.paired, higher_is_better=metric.higher_is_better)
    return ArmFinding(
        arm,
        cost.parameters,
        cost.flops,
        statistics.median(rates) if rates else None,
        max(memory, default=None),
        faster,
    )


def _optima(ablation: Ablation, metric: MetricValues) -> dict[str, Optimum | None]:
    """The best value of each swept number; the baseline is one of its points."""
    found: dict[str, Optimum | None] = {}
    for name, intervention in ablation.config.interventions.items():
        if not intervention.values:
            continue
        points = sweep_points(ablation, name, metric)
        if points is not None:
            found[name] = fit_optimum(points, higher_is_better=metric.higher_is_better)
    return found


def sweep_points(ablation: Ablation, name: str, metric: MetricValues) -> dict[float, Mapping[int, float]] | None:
    """The values of a swept option and what they gave; None if they are no numbers."""
    arms = [arm for arm in ablation.arms if arm.sweep == name]
    own = arms[0].variables[0].before if arms else None
    pairs = [(own, BASELINE), *((arm.value, arm.name) for arm in arms)]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value, _ in pairs):
        return None
    return {float(value): metric.arms[arm] for value, arm in sorted(pairs) if metric.arms.get(arm)}
