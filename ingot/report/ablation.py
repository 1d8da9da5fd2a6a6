"""The notebook of an ablation: what was predicted, tried, found and decided, as one page and as JSON.

The page has a forest plot of the gains with their intervals, the decision table, swept options with their fitted optimum, the
curves of all runs and a link to the report of each.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ingot.lab.decide import Decision, Difference
from ingot.lab.findings import ArmFinding, Findings, RunFinding, sweep_points
from ingot.lab.notes import notes, optimum_text
from ingot.report.build import STYLES
from ingot.report.curves import curves
from ingot.report.inline import inline
from ingot.report.read import Reader
from ingot.report.sweep import CURVES, WIDE
from ingot.workspace.files import write_json, write_text

SCRIPTS = ("base.js", "theme.js", "chart.js", "curves.js", "forest.js", "ablation.js")


def write_notebook(found: Findings, folder: Path) -> Path:
    """Write ablation.html and ablation.json into `folder`; the page's path."""
    data = contents(found)
    write_json(folder / "ablation.json", data)
    title = f"{found.ablation.name}: {found.ablation.recipe.name} · Ingot ablation"
    page = data | {"built": time.time(), "curves": _curves(found, folder), "lines": "Runs"}
    scripts = [f"report/page/{name}" for name in SCRIPTS]
    write_text(folder / "ablation.html", inline("report/page/ablation.html", STYLES, scripts, title=title, data=page))
    return folder / "ablation.html"


def contents(found: Findings) -> dict[str, Any]:
    """Everything that was found, as plain data; what is not known or not finite is null."""
    ablation = found.ablation
    config = ablation.config
    plain = {
        "name": ablation.name,
        "recipe": ablation.recipe.name,
        "baseline": config.baseline,
        "kind": config.kind,
        "set": list(ablation.common),
        "seeds": list(config.all_seeds),
        "match": config.match,
        "level": config.level,
        "worth": config.worth,
        "complete": found.complete,
        "tests": found.decisions.tests,
        "notes": notes(found),
        "metrics": [_metric(found, number) for number in range(len(found.metrics))],
        "arms": [_arm(found, number) for number in range(len(found.arms))],
        "sweeps": [_sweep(found, name) for name in found.optima],
        "runs": [_run(run) for run in found.runs],
        "spent": {"seconds": found.state.seconds, "flops": found.state.flops},
    }
    return {key: _finite(value) for key, value in plain.items()}


def _metric(found: Findings, number: int) -> dict[str, Any]:
    metric, noise = found.metrics[number], found.decisions.noise[number]
    return {
        "name": metric.name,
        "label": metric.label,
        "higher_is_better": metric.higher_is_better,
        "can_tell": metric.can_tell,
        "signal": None if metric.signal is None else metric.signal.as_json(),
        "baseline": {"mean": noise.mean, "deviation": noise.deviation, "seeds": noise.seeds, "shown": noise.shown},
    }


def _arm(found: Findings, number: int) -> dict[str, Any]:
    own = found.arms[number]
    decision = found.decisions.decisions[number - 1] if number else None
    return {
        "name": own.arm.name,
        "set": list(own.arm.changes),
        "changes": [
            {"key": variable.key, "before": variable.before, "after": variable.after} for variable in own.arm.variables
        ],
        "confounded": own.arm.confounded,
        "matched": None if own.arm.matched is None else own.arm.matched.text,
        "paired": own.arm.paired,
        "predicted": found.state.predicted.get(own.arm.name, []),
        "means": {
            metric.name: math.fsum(values) / len(values)
            for metric in found.metrics
            if (values := list(metric.arms.get(own.arm.name, {}).values()))
        },
        **_cost(own),
        **_decision(decision, found),
    }


def _cost(own: ArmFinding) -> dict[str, Any]:
    faster = own.speed_up
    return {
        "parameters": own.parameters,
        "flops": own.flops,
        "tokens_per_second": own.tokens_per_second,
        "memory_gib": own.memory_gib,
        "speed_up": None
        if faster is None
        else {
            "value": faster.value,
            "low": faster.low,
            "high": faster.high,
            "extrapolated": faster.extrapolated,
        },
    }


def _decision(decision: Decision | None, found: Findings) -> dict[str, Any]:
    if decision is None:
        return {"verdict": None, "why": "", "differences": []}
    level = found.ablation.config.level
    return {
        "verdict": decision.kind,
        "why": decision.why,
        "differences": [_difference(one, level) for one in decision.differences],
    }


def _difference(one: Difference, level: float) -> dict[str, Any]:
    return {
        "metric": one.metric,
        "difference": one.estimate.value,
        "standard_error": one.estimate.standard_error,
        "interval": list(one.estimate.interval()),
        "gain": one.gain,
        "gain_interval": None if one.gain_interval is None else list(one.gain_interval),
        "paired": one.paired,
        "tested": one.tested,
        "p_value": one.p_value,
        "corrected_p_value": one.corrected,
        "certain": one.certain(level),
        "runs_that_would_tell": one.more_seeds,
    }


def _sweep(found: Findings, name: str) -> dict[str, Any]:
    optimum, metric = found.optima[name], found.metrics[0]
    points: Mapping[float, Mapping[int, float]] = sweep_points(found.ablation, name, metric) or {}
    key = next(iter(found.ablation.config.interventions[name].values))
    log = bool(points) and min(points) > 0 and max(points) >= WIDE * min(points)
    return {
        "name": name,
        "key": key,
        "log": log,
        "text": optimum_text(optimum),
        "points": [{"value": value, "by_seed": list(seeds.values())} for value, seeds in points.items()],
        "optimum": None
        if optimum is None
        else {"value": optimum.value, "low": optimum.low, "high": optimum.high, "edge": optimum.edge},
        "fitted": [] if optimum is None else [list(pair) for pair in optimum.curve],
    }


def _run(each: RunFinding) -> dict[str, Any]:
    return {
        "name": each.run.name,
        "arm": each.run.arm.name,
        "seed": each.run.seed,
        "status": each.status,
        "values": {name: metric.estimate.value for name, metric in each.metrics.items()},
        "seconds": each.seconds,
        "tokens_per_second": each.tokens_per_second,
        "memory_gib": each.memory_gib,
        "error": each.error,
        "report": f"{each.run.name}/report.html" if (each.folder / "report.html").exists() else None,
    }


def _curves(found: Findings, folder: Path) -> list[dict[str, Any]]:
    """The curves of the measured stage of every run, once it has begun."""
    reader, made = Reader(folder), []
    for each in found.runs:
        rows = reader.rows(each.metrics_file) if each.metrics_file is not None else []
        kept = [{key: value for key, value in row.items() if key in (*CURVES, "step", "tokens")} for row in rows]
        made.append({"stage": each.run.name, "metrics": curves(kept)})
    return made


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
