"""run.json: what the last run of a recipe consisted of. The report reads this and the stage folders, nothing else.

    {"name", "seed", "recipe", "ingot", "started", "stages": [{"name", "kind", "folder", "inputs": {role: stage | path},
     "status": done | reused | running | failed | pending, "seconds", "summary", "error"}]}

It is written whole and atomically at every change of a status. `folder` is relative to the file: a name where the stages lie
beside it; in a trial of a sweep (lab/sweep.py) a path to the run folder that all trials share.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from ingot.recipe.folders import Done, input_names
from ingot.recipe.recipe import Recipe
from ingot.recipe.work import StageWork
from ingot.workspace.files import read_json, write_json
from ingot.workspace.progress import format_values
from ingot.workspace.version import VERSION

RUN_FILE = "run.json"
HEADLINE_VALUES = 4
HEADLINE_TEXT = 24


@dataclass
class StageResult:
    """How a stage of a run stands. `seconds` counts all attempts that ended in an orderly way."""

    name: str
    kind: str
    folder: Path
    inputs: dict[str, Any]
    status: str = "pending"
    seconds: float | None = None
    summary: dict[str, Any] = field(default_factory=dict)
    error: str | None = None

    def finish(self, done: Done, status: str) -> None:
        """Take over the result of a finished folder."""
        self.status, self.seconds, self.summary, self.error = status, done.seconds, done.summary, None

    def as_json(self) -> dict[str, Any]:
        """For `--json` and, with the folder relative to it, run.json: a run folder can be moved."""
        return {
            "name": self.name,
            "kind": self.kind,
            "folder": self.folder.name,
            "inputs": self.inputs,
            "status": self.status,
            "seconds": self.seconds,
            "summary": self.summary,
            "error": self.error,
        }


def headline(summary: Mapping[str, Any]) -> str:
    """The first few short values of a stage's summary, for one line on a screen."""
    short = {
        name: value
        for name, value in summary.items()
        if isinstance(value, int | float) or (isinstance(value, str) and len(value) <= HEADLINE_TEXT)
    }
    return format_values(dict(list(short.items())[:HEADLINE_VALUES]))


def make_results(works: Sequence[StageWork]) -> list[StageResult]:
    """The stages as they stand before a run: finished ones reused, the others pending."""
    results = []
    for work in works:
        result = StageResult(work.stage.name, work.stage.kind, work.folder, input_names(work.stage.inputs))
        if work.done is not None:
            result.finish(work.done, "reused")
        results.append(result)
    return results


class RunningRecord:
    """run.json of a run that is going on."""

    def __init__(self, folder: Path, recipe: Recipe, results: Sequence[StageResult]) -> None:
        self.path, self.recipe, self.results = folder / RUN_FILE, recipe, results
        self.started = datetime.now().astimezone().isoformat(timespec="seconds")
        spent = _unfinished_seconds(self.path)
        for result in results:
            if result.status == "pending":
                result.seconds = spent.get(result.folder.name)

    def write(self) -> None:
        """Write the present state."""
        content = {
            "name": self.recipe.name,
            "seed": self.recipe.seed,
            "recipe": str(self.recipe.path),
            "ingot": VERSION,
            "started": self.started,
            "stages": [
                result.as_json() | {"folder": Path(os.path.relpath(result.folder, self.path.parent)).as_posix()}
                for result in self.results
            ],
        }
        write_json(self.path, content)


def _unfinished_seconds(path: Path) -> dict[str, float]:
    """The time that earlier runs spent on stages they did not finish, by folder."""
    try:
        stages = read_json(path)["stages"]
        return {
            Path(stage["folder"]).name: float(stage["seconds"])
            for stage in stages
            if stage["seconds"] and stage["status"] not in ("done", "reused")
        }
    except (OSError, ValueError, KeyError, TypeError):  # no earlier run, or one of another version
        return {}
