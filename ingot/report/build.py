"""Builds the report of a run: one HTML file that opens anywhere and asks the network for nothing.

Style sheet, scripts and data are inlined. All content of the run travels as one JSON block and becomes text nodes in
the browser, never markup: documents and generations are hostile input. Two walls stand behind that: `<`, `>` and `&`
are escaped inside the JSON so that no text can close the block, and the Content-Security-Policy names the hashes of
the one style sheet and the one script, so that nothing else may run or load.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import re
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

from ingot.report.curves import curves
from ingot.report.evaluations import eval_table, evaluations
from ingot.report.read import read_run
from ingot.report.records import RunRecord, StageRecord
from ingot.report.select import curation, generations_by_task, rollouts_by_step
from ingot.workspace.files import write_text

SCRIPTS = (
    "base.js",
    "values.js",
    "header.js",
    "flow_layout.js",
    "flow.js",
    "evals.js",
    "diff.js",
    "chart.js",
    "samples.js",
    "step_reports.js",
    "funnel_step.js",
    "funnel.js",
    "curves.js",
    "generations.js",
    "rollouts.js",
    "stages.js",
    "main.js",
)


def build(run_folder: Path, out: Path | None = None) -> Path:
    """Write the report of the run in `run_folder` (to `run_folder`/report.html unless `out` is given); its path."""
    target = out or run_folder / "report.html"
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
        "evaluations": eval_table(found),
        "funnels": [curation(stage) for stage in run.stages if stage.funnel or stage.removed],
        "tokenizers": [{"stage": s.name, "statistics": s.tokenizer} for s in run.stages if s.tokenizer],
        "curves": [{"stage": s.name, "metrics": curves(s.metrics)} for s in run.stages if s.metrics],
        "generations": generations_by_task(found),
        "rollouts": [
            {"stage": stage.name, "total": len(stage.rollouts), "steps": rollouts_by_step(stage.rollouts)}
            for stage in run.stages
            if stage.rollouts
        ],
    }


def _stage(stage: StageRecord) -> dict[str, Any]:
    plain = ("name", "kind", "status", "seconds", "bytes", "folder", "inputs", "summary", "error", "config", "missing")
    return {name: getattr(stage, name) for name in plain}


def page(data: dict[str, Any]) -> str:
    """The HTML of the report from its data."""
    style = _part("report.css")
    script = '"use strict";\n(() => {\n' + "\n".join(_part(name) for name in SCRIPTS) + "})();\n"
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    title = html.escape(f"{data.get('name') or 'run'} · Ingot report")
    values = {"title": title, "policy": policy, "style": style, "script": script, "data": embed(data)}
    # One pass over the template: what is filled in is not searched for places to fill in again.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match.group(1)], _part("report.html"))


def embed(value: Any) -> str:
    """JSON that is safe inside a script element of an HTML page, whatever its strings hold.

    `<`, `>`, `&` could end the element or start a comment; U+2028/2029 are line ends to old script parsers; lone
    surrogates cannot be written as UTF-8. NaN and infinity, which JSON does not know, become null.
    """
    text = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=str)
    return re.sub("[<>&\u2028\u2029\ud800-\udfff]", lambda match: f"\\u{ord(match.group()):04x}", text)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _part(name: str) -> str:
    return (files("ingot.report") / "page" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")
