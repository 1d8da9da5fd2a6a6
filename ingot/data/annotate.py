"""Computes the columns of steps for every shard, and stores them so that none is computed twice.

Steps that look at one document at a time and follow one another make a *run*: one pass over each shard loads the text
once and stores each step's columns in a file of their own,

    annotate-STEP/KEY/columns.parquet      KEY = step, version, options but thresholds, the columns it reads, what is left

as long as the shard's base, null where the step did not look (or as it was, if the step reads what it writes). So an added
step or a changed option computes one file a shard, a changed threshold none. Inside a run every step looks at all
documents that were alive when the run began, also at those that an earlier step of the run will remove: so a changed
threshold computes no column.

A step across documents sees only the documents that are alive and that its `where` selects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.compute
import pyarrow.parquet

from ingot.data.columns import (
    content_name,
    full_length,
    input_key,
    kept_elsewhere,
    matching,
    write_mask,
    written,
)
from ingot.data.engine.shard import COLUMNS, Shard, write_columns
from ingot.data.engine.store import commit, finished
from ingot.data.engine.work import Work, WorkerJob
from ingot.data.step import Step, cached_step, meaning
from ingot.workspace.config import content_hash
from ingot.workspace.errors import CheckFailed


@dataclass(frozen=True)
class Wanted:
    """A step whose columns are wanted, and where they go."""

    step: Step
    meaning: str
    target: Path


def annotate_each(steps: Sequence[Step], shards: Sequence[Shard], work: Work) -> tuple[list[list[Shard]], list[float]]:
    """One pass of a run of steps; for every step the shards with its columns and those of the steps before it, and
    what it cost in processor seconds."""
    after: list[list[Shard]] = [[] for _ in steps]
    targets: list[list[Path]] = [[] for _ in steps]
    jobs = []
    keys = [[step.short_name, step.version, step.annotation_key()] for step in steps]
    meanings = [meaning(step) for step in steps]
    for shard in shards:
        view, wanted = shard, []
        for number, step in enumerate(steps):
            key = content_hash([keys[number], input_key(view, step.reads())], 24)
            target = work.folder / f"annotate-{step.short_name}" / key
            wanted.append(Wanted(step, meanings[number], target))
            view = view.annotated(written(step), target / COLUMNS, key)
            after[number].append(view)
            targets[number].append(target)
        if any(work.result(each.target) is None for each in wanted):
            jobs.append(WorkerJob(annotate_shard, (shard, wanted), f"shard {shard.number}", shard.bytes))
    work.execute(", ".join(step.short_name for step in steps), jobs)
    return after, [sum(work.needed(target).seconds for target in each) for each in targets]


def annotate_shard(shard: Shard, wanted: Sequence[Wanted]) -> None:
    """Compute what is missing for one shard (in a worker)."""
    view = shard
    loaded: dict[str, pyarrow.ChunkedArray] = {}
    for each in wanted:
        if finished(each.target) is None:
            with commit(each.target) as made:
                missing = [name for name in each.step.reads() if name not in loaded]
                table = view.read(missing)
                loaded |= {name: table.column(name) for name in missing}
                step = cached_step(each.step, each.meaning)
                write_columns(made.folder / COLUMNS, annotate_some(step, loaded, view))
        view = view.annotated(written(each.step), each.target / COLUMNS, each.target.name)
        for name in written(each.step):
            loaded.pop(name, None)


def annotate_some(step: Step, loaded: dict[str, pyarrow.ChunkedArray], shard: Shard) -> dict[str, pyarrow.Array]:
    """The step's columns for the documents it looks at, as long as the base."""
    assert not step.across
    rows = shard.rows_alive()
    looked_at = matching(step.where, loaded, len(rows))
    documents = pyarrow.table({name: loaded[name] for name in dict.fromkeys(step.reads())})
    if not looked_at.all():
        documents = documents.filter(pyarrow.array(looked_at))
    found: dict[str, Any] = step.annotate(documents) if len(documents) else {}
    if len(documents) and set(found) != set(step.writes()):
        raise CheckFailed(
            f"the step returned the columns {', '.join(sorted(found))}; it says that it writes "
            f"{', '.join(sorted(step.writes()))}",
            place=f"step {step.short_name}",
        )
    before = {name: loaded[name] for name in kept_elsewhere(step)}
    return full_length(found, step, rows[looked_at], rows, before, shard.rows)


@dataclass(frozen=True)
class Selecting:
    """A shard out of which `where` selects."""

    key: str
    shard: Shard

    @property
    def bytes(self) -> int:
        return self.shard.bytes


@dataclass(frozen=True)
class Spreading:
    """A result for the documents of `narrow`, to be brought to the length of the shard."""

    key: str
    shard: Shard
    narrow: Shard
    found: Path
    step: Step

    @property
    def bytes(self) -> int:
        return self.shard.bytes


def annotate_across(step: Step, shards: Sequence[Shard], work: Work) -> list[Shard]:
    """The shards with the columns of a step that compares documents with one another."""
    narrow = list(shards)
    if step.where:
        items = [Selecting(input_key(shard, list(step.where)), shard) for shard in shards]
        masks = work.run("where", select_rows, items, step.where)
        narrow = [
            replace(shard, alive=done.file(done.report["alive"])) for shard, done in zip(shards, masks, strict=True)
        ]
    # Locations hold the number of the shard: the same documents under another number are another task.
    narrow = [replace(shard, key=content_hash([shard.number, input_key(shard, step.reads())], 24)) for shard in narrow]
    found = step.annotate(narrow, work)
    spread = [
        Spreading(
            content_hash([content_name(path), input_key(few, ["text"]), input_key(shard, ["text"])], 24),
            shard,
            few,
            path,
            step,
        )
        for shard, few, path in zip(shards, narrow, found, strict=True)
    ]
    results = work.run(f"annotate-{step.short_name}", spread_columns, spread, list(written(step)))
    return [
        shard.annotated(written(step), done.file(COLUMNS), done.key)
        for shard, done in zip(shards, results, strict=True)
    ]


def select_rows(folder: Path, item: Selecting, where: dict[str, str | list[str]]) -> dict[str, Any]:
    """The mask of the documents alive that `where` selects."""
    table = item.shard.read(list(where))
    rows = item.shard.rows_alive()
    chosen = matching(where, {name: table.column(name) for name in table.column_names}, len(rows))
    return {"alive": write_mask(folder, rows[chosen], item.shard.rows)}


def spread_columns(folder: Path, item: Spreading, names: list[str]) -> dict[str, Any]:
    """Bring the result of a step across documents to the length of the shard."""
    table = pyarrow.parquet.read_table(item.found, use_threads=False)
    rows = item.narrow.rows_alive()
    if len(table) != len(rows):
        raise CheckFailed(
            f"the step returned {len(table):,} rows for {len(rows):,} documents", place=f"step {item.step.short_name}"
        )
    found = {name: table.column(name) for name in item.step.writes()}
    table = item.shard.read(kept_elsewhere(item.step))
    before = {name: table.column(name) for name in table.column_names}
    alive = item.shard.rows_alive()
    write_columns(folder / COLUMNS, full_length(found, item.step, rows, alive, before, item.shard.rows))
    return {}
