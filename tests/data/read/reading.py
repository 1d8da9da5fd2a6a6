"""Helpers of the tests of readers."""

from __future__ import annotations

from typing import Any

import pyarrow

from ingot.data.read.config import SourceConfig
from ingot.data.read.document import schema_of
from ingot.data.read.plan import SPLIT_BYTES, plan
from ingot.data.read.problem import ReadProblems
from ingot.data.read.read import read_split


def read_all(
    source: SourceConfig, *, split_bytes: int = SPLIT_BYTES, max_bytes: int | None = None
) -> tuple[Any, ReadProblems]:
    """All documents of a source as one table, and the problems."""
    problems = ReadProblems()
    tables = [schema_of(source).empty_table()]
    for split in plan(source, max_bytes, split_bytes).splits:
        tables += list(read_split(split, source, problems))
    return pyarrow.concat_tables(tables), problems


def texts(table: Any) -> list[str]:
    """The texts of a table."""
    return list(table.column("text").to_pylist())
