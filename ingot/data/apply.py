"""Applies one step to documents in memory: to try a rule, to test one, to use one without a pipeline.

table = apply(GopherQualityStep(min_words=20), ["first text", "second text"])
table.column("removed_by")        # null where the document stays, else "word count 2 < 20"
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute
import pyarrow.parquet

from ingot.data.columns import matching, scatter
from ingot.data.engine.shard import Shard
from ingot.data.engine.work import Work
from ingot.data.read.config import BASE_COLUMNS
from ingot.data.step import Step


def as_table(documents: pyarrow.Table | list[str] | list[dict[str, Any]]) -> pyarrow.Table:
    """Documents as a table with at least `id`, `text` and `source`."""
    if isinstance(documents, list):
        rows = [{"text": row} if isinstance(row, str) else row for row in documents]
        documents = pyarrow.Table.from_pylist(rows)
    count = len(documents)
    if "id" not in documents.column_names:
        documents = documents.append_column("id", pyarrow.array([str(number) for number in range(count)]))
    if "source" not in documents.column_names:
        documents = documents.append_column("source", pyarrow.array(["memory"] * count))
    return documents


def apply(step: Step, documents: pyarrow.Table | list[str] | list[dict[str, Any]]) -> pyarrow.Table:
    """The documents with the step's columns and `removed_by`; nothing is dropped."""
    table = as_table(documents)
    for name in step.reads():
        if name in BASE_COLUMNS and name not in table.column_names:  # what no reader knows is null
            table = table.append_column(name, pyarrow.nulls(len(table), pyarrow.string()))
    rows = np.flatnonzero(matching(step.where, {name: table.column(name) for name in step.where}, len(table)))
    seen = table.take(pyarrow.array(rows))
    columns: dict[str, Any]
    if not step.across:
        columns = step.annotate(seen.select(list(dict.fromkeys(step.reads()))))
    else:
        with tempfile.TemporaryDirectory() as folder:
            base = Path(folder) / "base.parquet"
            pyarrow.parquet.write_table(seen, base)
            shard = Shard(0, "memory", base, len(seen), sum(map(len, seen.column("text").to_pylist())))
            [path] = step.annotate([shard], Work(Path(folder) / "work"))
            found = pyarrow.parquet.read_table(path)
            columns = {name: found.column(name).combine_chunks() for name in step.writes()}
    annotated = seen
    for name, values in columns.items():
        if name in annotated.column_names:
            annotated = annotated.drop_columns([name])
        annotated = annotated.append_column(name, values)
    reasons: list[str | None] = [None] * len(table)
    for rule in reversed(step.decide(annotated)):
        for row in np.flatnonzero(rule.broken):
            reasons[rows[row]] = f"{rule.name} {rule.detail(int(row))}".rstrip()
    for name in columns:
        values = scatter(annotated.column(name), rows, len(table))
        if name in table.column_names:  # a rewritten text: the others keep theirs
            values = pyarrow.compute.coalesce(values, table.column(name).combine_chunks().cast(values.type))
            table = table.drop_columns([name])
        table = table.append_column(name, values)
    return table.append_column("removed_by", pyarrow.array(reasons, pyarrow.string()))
