"""Writes the model card of a checkpoint: the stages that made it, scores with their errors, claims, the options of its stage.

It is Markdown with the heading that the Hugging Face hub reads. Folders of this machine are not part of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from ingot.evals.scores.scores import Metric, load_scores
from ingot.recipe.record import RUN_FILE, headline
from ingot.recipe.tree import dump_yaml
from ingot.report.evaluations import evaluated, metric_of
from ingot.report.read import read_run
from ingot.report.records import RunRecord, StageRecord
from ingot.workspace.outside import without_paths
from ingot.workspace.progress import format_number, format_seconds
from ingot.workspace.version import VERSION

SNAPSHOT = re.compile(
    r"models--([\w.-]+?)--([\w.-]+)/snapshots/([0-9a-f]+)", re.ASCII
)  # where the hub's client keeps models
FOLDERS = re.compile(r"(?<![\w:/.])(?:~|/)[^\s'\",]*/")  # of an absolute path: its last name stays


def make_card(name: str, checkpoint: Path, others: Sequence[Path] = ()) -> str:
    """The card of the model `name` of the hub. `others` are folders with further scores of it."""
    run = read_run(checkpoint.parent) if (checkpoint.parent / RUN_FILE).is_file() else None
    stages = [] if run is None else made_by(run, checkpoint.name)
    bases = dict.fromkeys(SNAPSHOT.findall(str([each.inputs for each in stages])))
    head = {
        "library_name": "transformers",
        "tags": ["ingot", *dict.fromkeys(without_paths(each.kind) for each in stages)],
    }
    head |= {"base_model": [f"{owner}/{model}" for owner, model, _ in bases]} if bases else {}
    parts = [f"---\n{dump_yaml(head)}---\n", f"# {name.rpartition('/')[2]}\n", f"Made with Ingot {VERSION}.\n"]
    parts += [f"From [{o}/{m}](https://huggingface.co/{o}/{m}) at commit {commit}.\n" for o, m, commit in bases]
    if stages:
        rows = [(each.name, without_paths(each.kind), _time(each), headline(each.summary)) for each in stages]
        parts.append(_section("How it was made", _table(("stage", "kind", "time", "result"), rows)))
    scores = _scores(run, stages[-1].name) if run is not None and stages else {}
    for folder in others:
        scores |= load_scores(folder)
    if scores:
        columns = "metric", "value", "standard error", "questions", "chance"
        parts.append(_section("Scores", _table(columns, map(_row, scores.values()))))
    if claims := [claim for stage in (run.stages if run else ()) for claim in stage.claims]:
        words = {True: "held", False: "did not hold", None: "not known"}
        parts.append(_section("Claims", "".join(f"- {each.claim}: {words[each.held]}\n" for each in claims)))
    if stages and (options := stages[-1].config):
        parts.append(_section(f"Options of {stages[-1].name}", f"```yaml\n{FOLDERS.sub('', options)}```\n"))
    return "\n".join(parts)


def _scores(run: RunRecord, name: str) -> dict[str, Metric]:
    """What evals of the run have measured of this stage's checkpoint."""
    return {
        key: metric_of(key, score, stage.units.get(key, {}), stage.clusters.get(key, {}))
        for stage in run.stages
        if evaluated(stage) == name
        for key, score in stage.scores.items()
    }


def measured(scores: Path) -> Path | None:
    """The checkpoint that the eval in this stage folder has measured; None if no record says it."""
    folder = scores.parent
    stages = read_run(folder).stages if (folder / RUN_FILE).is_file() else []
    stage = next((each for each in stages if Path(each.folder or "").name == scores.name), None)
    named = [] if stage is None else stage.inputs.get("checkpoint", [])
    if not named:
        return None
    made = next((each.folder for each in stages if each.name == named[0]), None)
    return folder / made if made else Path(named[0])


def made_by(run: RunRecord, folder: str) -> list[StageRecord]:
    """The stages that the result in a stage's folder follows from, in order, itself the last."""
    stages = {each.name: each for each in run.stages}
    last = next((each for each in run.stages if Path(each.folder or "").name == folder), None)
    if last is None:
        return []
    needed, waiting = {last.name}, [last]
    while waiting:
        names = [name for several in waiting.pop().inputs.values() for name in several if name in stages]
        waiting += [stages[name] for name in names if name not in needed]
        needed |= {*names}
    return [each for each in run.stages if each.name in needed]


def _row(metric: Metric) -> tuple[str, ...]:
    found, chance = metric.estimate, metric.chance
    error = f"{found.standard_error:.2g}" if found.standard_error < float("inf") else "not known"
    return (
        metric.name,
        format_number(found.value),
        error,
        f"{found.count:,}",
        "" if chance is None else format_number(chance),
    )


def _time(stage: StageRecord) -> str:
    return "" if stage.seconds is None else format_seconds(stage.seconds)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = [head, ["---"] * len(head), *([each.replace("|", "\\|") for each in row] for row in rows)]
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


def _section(title: str, text: str) -> str:
    return f"## {title}\n\n{text}"
