"""Builds the report of a run: one HTML file that needs no network (see `inline.py`)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from ingot.report.curves import curves
from ingot.report.evaluations import eval_table, evaluations
from ingot.report.histories import compute, histories
from ingot.report.inline import inline
from ingot.report.read import read_run
from ingot.report.records import RunRecord, StageRecord
from ingot.report.rollouts import rollouts_by_step
from ingot.report.select import curation, generations_by_task
from ingot.workspace.files import write_text
from ingot.workspace.outside import without_paths

STYLES = ("report/page/base.css", "report/page/report.css")
SCRIPTS = (
    "base.js",
    "theme.js",
    "values.js",
    "header.js",
    "flow_layout.js",
    "flow.js",
    "evals.js",
    "diff.js",
    "chart.js",
    "history.js",
    "samples.js",
    "step_reports.js",
    "funnel_step.js",
    "funnel.js",
    "curves.js",
    "generations.js",
    "rollout_colours.js",
    "rollout_tokens.js",
    "rollout_group.js",
    "rollouts.js",
    "stages.js",
    "main.js",
)


def build(run_folder: Path, out: Path | None = None) -> Path:
    """Write the report of the run in `run_folder`: to `out`, a file or a folder, or beside the stages; its path."""
    target = out or run_folder
    if target.is_dir():
        target /= "report.html"
    write_text(target, page(contents(read_run(run_folder))))
    return target


def contents(run: RunRecord) -> dict[str, Any]:
    """Everything that the page shows, as plain data."""
    found = evaluations(run.stages)
    return {
        "name": run.name,
        "seed": run.seed,
        "date": run.date,
        "recipe": run.recipe,
        "version": run.version,
        "built": time.time(),
        "problems": run.problems,
        "stages": [_stage(stage) for stage in run.stages],
        "verdicts": [
            {"stage": stage.name, "claims": [claim.model_dump() for claim in stage.claims]}
            for stage in run.stages
            if stage.claims
        ],
        "evaluations": eval_table(found, {stage.choice.metric for stage in run.stages if stage.choice}),
        "histories": histories(found),
        "compute": compute(run.stages),
        "funnels": [curation(stage) for stage in run.stages if stage.funnel or stage.removed],
        "tokenizers": [{"stage": s.name, "statistics": s.tokenizer} for s in run.stages if s.tokenizer],
        "curves": [{"stage": s.name, "metrics": curves(s.metrics)} for s in run.stages if s.metrics],
        "generations": generations_by_task(found),
        "rollouts": [
            {
                "stage": stage.name,
                "total": len(stage.rollouts),
                "total_steps": len({rollout.step for rollout in stage.rollouts}),
                "steps": rollouts_by_step(stage.rollouts),
            }
            for stage in run.stages
            if stage.rollouts
        ],
    }


def _stage(stage: StageRecord) -> dict[str, Any]:
    plain = (
        "name",
        "kind",
        "status",
        "seconds",
        "bytes",
        "folder",
        "inputs",
        "summary",
        "error",
        "config",
        "missing",
        "panel",
    )
    return {name: getattr(stage, name) for name in plain} | {"kind": without_paths(stage.kind)}


def page(data: dict[str, Any]) -> str:
    """The HTML of the report from its data."""
    title = f"{data.get('name') or 'run'} · Ingot report"
    return inline(
        "report/page/report.html", STYLES, [f"report/page/{name}" for name in SCRIPTS], title=title, data=data
    )
