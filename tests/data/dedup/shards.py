"""Runs a step on documents cut into shards, and gives back what a person would see: ids, not places."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet

from ingot.data.apply import as_table
from ingot.data.engine.shard import Shard, shard_and_row
from ingot.data.engine.work import Work
from ingot.data.step import AcrossDocuments, Step


@dataclass(frozen=True)
class Result:
    """One row a document, in order: its columns; `reason`: the id of the document it is removed for, `broken`: it goes."""

    rows: list[dict[str, Any]]

    def removed(self) -> dict[str, str]:
        """Removed id -> id of the one that stays."""
        return {row["id"]: row["reason"] for row in self.rows if row["broken"]}

    def clusters(self) -> set[frozenset[str]]:
        """Sets of ids: those removed for the same document, with it."""
        found: dict[str, set[str]] = {}
        for gone, kept in self.removed().items():
            found.setdefault(kept, {kept}).add(gone)
        return {frozenset(cluster) for cluster in found.values()}


def run(config: Step, documents: pyarrow.Table | list[dict[str, Any]] | list[str], cuts: Sequence[int] = ()) -> Result:
    """The step on the documents, cut into shards before the given rows.

    Shard numbers have gaps, and before every document stands a copy of it that was removed earlier: no step may see it.
    """
    table = as_table(documents)
    step = config
    assert isinstance(step, AcrossDocuments)
    edges = [0, *cuts, len(table)]
    with tempfile.TemporaryDirectory() as folder:
        shards, tables = [], []
        for number, (first, last) in enumerate(pairwise(edges)):
            part = table.take(np.repeat(np.arange(first, last), 2))
            base, alive = Path(folder) / f"{number}.parquet", Path(folder) / f"{number}.bin"
            pyarrow.parquet.write_table(part, base)
            alive.write_bytes(b"\0\1" * (last - first))
            size = sum(len(text.encode()) for text in part.column("text").to_pylist())
            shards.append(Shard(3 * number + 1, f"{number} of {edges}", base, len(part), size, alive=alive))
            tables.append(part)
        paths = step.annotate(shards, Work(Path(folder) / "work"))
        rows: list[dict[str, Any]] = []
        for part, path in zip(tables, paths, strict=True):
            columns = pyarrow.parquet.read_table(path)
            assert tuple(sorted(columns.column_names)) == tuple(sorted(config.writes()))
            [rule] = step.decide(columns)
            partners = rule.partners if rule.partners is not None else np.full(len(columns), -1)
            for row, (before, after) in enumerate(zip(part.to_pylist()[1::2], columns.to_pylist(), strict=True)):
                shard_number, at = shard_and_row(np.array([partners[row]]))
                reason = (
                    tables[(int(shard_number[0]) - 1) // 3].column("id")[int(at[0])].as_py()
                    if partners[row] >= 0
                    else None
                )
                rows.append(before | after | {"broken": bool(rule.broken[row]), "reason": reason})
    return Result(rows)
