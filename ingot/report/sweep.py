"""The results of a sweep: a page with the metric against the swept values, a CSV row for each trial, and the same as JSON.

The page has the parts of the report: its charts, its curves, its style; one line for each value of a second option. Curves are
those of the first stage that trains and differs between trials.
"""

from __future__ import annotations

import csv
import io
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ingot.evals.scores.statistics import Estimate
from ingot.lab.compare import Comparison, Setting, compare, notes
from ingot.lab.grid import Axis, short_names, written
from ingot.lab.sweep import SIZES, Outcome, Sweep
from ingot.report.build import STYLES
from ingot.report.curves import curves
from ingot.report.inline import inline
from ingot.report.read import Reader
from ingot.workspace.files import write_json, write_text

SCRIPTS = ("base.js", "theme.js", "chart.js", "curves.js", "sweep.js")
CURVES = (
    "loss",
    "validation_bits_per_byte",
    "learning_rate",
    "gradient_norm",
    "reward",
    "correct_share",
    "response_length",
    "preference_accuracy",
    "margin",
    "teacher_divergence",
)
"""Metrics whose curves the page has: dozens of trials with all of theirs would be too much to load."""
WIDE = 5.0  # a range of positive values wider than this factor is drawn on a log scale


def write_sweep(sweep: Sweep, outcomes: Sequence[Outcome], folder: Path) -> Path:
    """Write sweep.html, sweep.csv and sweep.json into `folder`; the page's path."""
    found = contents(sweep, outcomes)
    write_json(folder / "sweep.json", found)
    write_text(folder / "sweep.csv", as_csv(sweep, outcomes))
    title = f"{sweep.name}: {sweep.target.text} · Ingot sweep"
    data = found | {"built": time.time(), "curves": _curves(outcomes, folder), "lines": "Trials"}
    scripts = [f"report/page/{name}" for name in SCRIPTS]
    write_text(folder / "sweep.html", inline("report/page/sweep.html", STYLES, scripts, title=title, data=data))
    return folder / "sweep.html"


def contents(sweep: Sweep, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The comparison as plain data, settings from the best to the worst."""
    comparison = compare(sweep, outcomes)
    names = short_names([axis.key for axis in sweep.axes])
    metrics = [metric for setting in comparison.settings for metric in setting.metrics]
    return {
        "name": sweep.name,
        "recipe": sweep.path.name,
        "metric": sweep.target.text,
        "label": f"{metrics[0].label if metrics else sweep.target.metric} after {sweep.target.stage}",
        "higher_is_better": comparison.higher_is_better,
        "fixed": list(sweep.fixed),
        "seeds": list(sweep.seeds),
        "axes": [_axis(axis, names[axis.key]) for axis in sweep.axes],
        "trials": len(sweep.trials),
        "notes": notes(comparison),
        "settings": [_setting(setting, comparison) for setting in comparison.settings],
    }


def _axis(axis: Axis, name: str) -> dict[str, Any]:
    log = axis.numeric and min(axis.values) > 0 and max(axis.values) >= WIDE * min(axis.values)
    return {"key": axis.key, "name": name, "values": list(axis.values), "numeric": axis.numeric, "log": log}


def _setting(setting: Setting, comparison: Comparison) -> dict[str, Any]:
    found, best = setting.estimate, comparison.best
    plain: dict[str, Any] = {"label": setting.trial.label, "values": dict(setting.trial.values)}
    plain |= {"value": None, "standard_error": None, "difference": None, "close": setting in comparison.close}
    if found is not None:
        plain |= _estimate(found)
    if found is not None and best is not None and setting is not best:
        plain["difference"] = _estimate(setting.minus(best))
    plain["sizes"] = {name: size for name in SIZES if (size := setting.size(name)) is not None}
    plain["seconds"] = math.fsum(outcome.seconds for outcome in setting.outcomes)
    plain["trials"] = [_trial(outcome) for outcome in setting.outcomes]
    return plain


def _estimate(found: Estimate) -> dict[str, Any]:
    known = math.isfinite(found.standard_error)
    return {"value": found.value, "standard_error": found.standard_error if known else None, "count": found.count}


def _trial(outcome: Outcome) -> dict[str, Any]:
    value = None if outcome.metric is None else outcome.metric.estimate.value
    shown = {"seed": outcome.trial.seed, "status": outcome.status, "value": value, "error": outcome.error}
    return shown | {"folder": outcome.folder.name}


def _curves(outcomes: Sequence[Outcome], folder: Path) -> list[dict[str, Any]]:
    reader = Reader(folder)
    found = []
    for outcome in outcomes:
        rows = reader.rows(outcome.curves) if outcome.curves is not None else []
        kept = [{key: value for key, value in row.items() if key in (*CURVES, "step", "tokens")} for row in rows]
        found.append({"stage": outcome.trial.folder, "metrics": curves(kept)})
    return found


def as_csv(sweep: Sweep, outcomes: Sequence[Outcome]) -> str:
    """One row for each trial; a value that is not known is empty."""
    text = io.StringIO()
    keys = [axis.key for axis in sweep.axes]
    table = csv.writer(text, lineterminator="\n")
    table.writerow([*keys, "seed", "status", sweep.target.text, "standard_error", *SIZES, "seconds", "error", "folder"])
    for outcome in outcomes:
        found = outcome.metric.estimate if outcome.metric is not None else None
        error = found.standard_error if found is not None and math.isfinite(found.standard_error) else None
        values = [written(value) for _, value in outcome.trial.values]
        sizes = [dict(outcome.sizes).get(name) for name in SIZES]
        row = [*values, outcome.trial.seed, outcome.status, None if found is None else found.value, error, *sizes]
        table.writerow([*row, round(outcome.seconds, 3), outcome.error, outcome.folder.name])
    return text.getvalue()
