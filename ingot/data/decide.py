"""Applies the rules of steps to stored columns: which documents go, by which rule, with which numbers. It is cheap.

For a run of steps and one shard a task writes

    alive-CONTENT.bin     one byte a row: still there after the last step of the run
    verdicts.parquet      a row for each document that goes: row, step, rule, detail, spans, partner

A document that breaks a rule of several steps goes by the first step, and within a step by the first rule.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
from numpy.typing import NDArray

from ingot.data.columns import SIZES, content_name, input_key, matching, write_mask
from ingot.data.engine.shard import Shard
from ingot.data.engine.store import FinishedTask
from ingot.data.engine.work import Work
from ingot.data.step import Rule, Step, cached_step, meaning
from ingot.workspace.config import content_hash

VERDICTS = "verdicts.parquet"
VERSION = 3  # raise it when what a task saves changes


@dataclass(frozen=True)
class ShardView:
    """One shard before a run of steps (`shard`), and with the columns of each of them (`after`)."""

    key: str
    shard: Shard
    after: tuple[Shard, ...]
    steps: tuple[Step, ...]
    meanings: tuple[str, ...]

    @property
    def bytes(self) -> int:
        return self.shard.rows * 100  # small columns, not the text


def decide(
    steps: Sequence[Step], shards: Sequence[Shard], after: Sequence[Sequence[Shard]], work: Work
) -> tuple[list[Shard], list[FinishedTask]]:
    """The shards with what is alive after the run of steps, and the tasks that judged them."""
    meanings = tuple(meaning(step) for step in steps)
    items = []
    for number, shard in enumerate(shards):
        views = tuple(each[number] for each in after)
        columns = [
            [content_name(view.path_of(name)) for name in seen(step)] for step, view in zip(steps, views, strict=True)
        ]
        key = content_hash([list(meanings), columns, input_key(shard, [SIZES])], 24)
        items.append(ShardView(key, shard, views, tuple(steps), meanings))
    done = work.run("decide", judge, items, version=VERSION)
    last = [
        view.surviving(task.file(task.report["alive"]), task.key) for view, task in zip(after[-1], done, strict=True)
    ]
    return last, done


def seen(step: Step) -> list[str]:
    """The columns that rules see: what the step wrote, and what it read except the text."""
    names = dict.fromkeys([*step.writes(), *step.reads()])
    return [name for name in names if name != "text" or "text" in step.writes()]


def judge(folder: Path, item: ShardView, _: None) -> dict[str, Any]:
    """Apply the rules of every step in turn."""
    began = item.shard.rows_alive()
    alive = np.zeros(item.shard.rows, bool)
    alive[began] = True
    sizes = sizes_of(item.shard)
    rows: list[dict[str, Any]] = []
    steps: list[dict[str, Any]] = []
    for number, (own, view) in enumerate(zip(item.steps, item.after, strict=True)):
        step = cached_step(own, item.meanings[number])
        before = (int(alive.sum()), int(sizes[alive].sum()))
        reasons: Counter[str] = Counter()
        for row, rule, index in broken(step, view, began):
            if alive[row]:
                alive[row] = False
                reasons[rule.name] += 1
                rows.append(verdict(number, row, rule, index))
        cut = 0
        if "text" in step.writes():
            rewritten = sizes_of(view)
            cut = int((sizes - rewritten)[alive].sum())
            sizes = rewritten
        steps.append(
            {
                "documents": [before[0], int(alive.sum())],
                "bytes": [before[1], int(sizes[alive].sum())],
                "cut": cut,
                "reasons": dict(sorted(reasons.items())),
                "repaired": dict(sorted(noted(step, view, np.flatnonzero(alive)).items())),
            }
        )
    pyarrow.parquet.write_table(verdict_table(rows), folder / VERDICTS, compression="zstd")
    return {"alive": write_mask(folder, np.flatnonzero(alive), item.shard.rows), "steps": steps}


def sizes_of(shard: Shard) -> NDArray[np.int64]:
    """Bytes of every text of a shard; 0 for a document that was removed before the text was rewritten."""
    column = shard.read([SIZES], removed=True).column(SIZES).combine_chunks()
    return np.asarray(column.fill_null(0).to_numpy(zero_copy_only=False), np.int64)


def looked_at(step: Step, view: Shard, alive: NDArray[np.int64]) -> tuple[NDArray[np.int64], pyarrow.Table]:
    """The documents alive that the step looked at: their rows, and the columns that rules see."""
    table = view.read(seen(step), removed=True).take(pyarrow.array(alive))
    chosen = matching(step.where, {name: table.column(name) for name in step.where}, len(alive))
    return alive[chosen], table.filter(pyarrow.array(chosen))


def noted(step: Step, view: Shard, alive: NDArray[np.int64]) -> Counter[str]:
    """The notes of a step on the documents that stay, counted."""
    if type(step).notes is Step.notes:
        return Counter()
    return Counter(note for note in step.notes(looked_at(step, view, alive)[1]) if note)


def broken(step: Step, view: Shard, alive: NDArray[np.int64]) -> list[tuple[int, Rule, int]]:
    """For each document that breaks a rule: its row, the first such rule, its index in the rule's arrays."""
    rows, table = looked_at(step, view, alive)
    if not len(rows):
        return []
    first: dict[int, Rule] = {}
    for rule in step.decide(table):
        for index in np.flatnonzero(rule.broken).tolist():
            first.setdefault(index, rule)
    return [(int(rows[index]), first[index], index) for index in sorted(first)]


def verdict(step: int, row: int, rule: Rule, index: int) -> dict[str, Any]:
    """A row of verdicts.parquet."""
    return {
        "row": row,
        "step": step,
        "rule": rule.name,
        "detail": rule.detail(index),
        "spans": [[int(start), int(end)] for start, end in rule.spans[index]] if rule.spans is not None else None,
        "partner": int(rule.partners[index]) if rule.partners is not None else -1,
    }


def verdict_table(rows: list[dict[str, Any]]) -> pyarrow.Table:
    """The verdicts as a table, with the same columns also if there is none."""
    schema = pyarrow.schema(
        [
            ("row", pyarrow.int64()),
            ("step", pyarrow.int64()),
            ("rule", pyarrow.string()),
            ("detail", pyarrow.string()),
            ("spans", pyarrow.list_(pyarrow.list_(pyarrow.int64()))),
            ("partner", pyarrow.int64()),
        ]
    )
    return pyarrow.Table.from_pylist(rows, schema=schema)
