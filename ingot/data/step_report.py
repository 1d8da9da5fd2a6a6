"""Makes the reports of steps on the documents that they looked at: a JSON file next to funnel.json, lines for the screen.

One task a step, which reads the step's columns shard by shard.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow

from ingot.data.columns import input_key, matching
from ingot.data.engine.shard import Shard
from ingot.data.engine.store import FinishedTask
from ingot.data.engine.work import WorkPhase
from ingot.data.step import Report, Step, cached_step, meaning
from ingot.workspace.config import content_hash


@dataclass(frozen=True)
class Reporting:
    """A step, and the shards with its columns, alive as it found them."""

    key: str
    name: str
    shards: tuple[Shard, ...]
    step: Step
    meaning: str

    @property
    def bytes(self) -> int:
        return sum(shard.rows for shard in self.shards) * 100  # small columns, not the text


def reporting(step: Step, name: str, shards: Sequence[Shard]) -> list[Reporting]:
    """The item of a step that has something to report, none for others."""
    if type(step).report is Step.report:
        return []
    known = meaning(step)
    key = content_hash([known, name, [input_key(shard, columns(step)) for shard in shards]], 24)
    return [Reporting(key, name, tuple(shards), step, known)]


def reports_phase(items: Sequence[Reporting]) -> WorkPhase:
    """The tasks that make reports."""
    return WorkPhase("step_reports", report_step, items)


def reports_of(items: Sequence[Reporting], done: Sequence[FinishedTask]) -> dict[str, Report]:
    """The reports by the names of their steps."""
    return {item.name: Report(**task.report) for item, task in zip(items, done, strict=True) if task.report}


def columns(step: Step) -> list[str]:
    """The columns that a report needs."""
    return ["id", *step.writes(), *step.where]


def report_step(folder: Path, item: Reporting, _: None) -> dict[str, Any]:
    """Make the report of a step."""
    report = cached_step(item.step, item.meaning).report(looked_at(item))
    return {} if report is None else asdict(report)


def looked_at(item: Reporting) -> Iterator[pyarrow.Table]:
    """Shard by shard the ids and the step's columns of the documents that it looked at."""
    where = item.step.where
    for shard in item.shards:
        table = shard.read(columns(item.step))
        table = table.filter(pyarrow.array(matching(where, {name: table.column(name) for name in where}, len(table))))
        if len(table):
            yield table
