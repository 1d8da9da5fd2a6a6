"""Columns of a shard: their names, what they depend on, and how values of some rows become a column of all."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute
import pyarrow.parquet
from numpy.typing import NDArray

from ingot.data.engine.shard import Shard
from ingot.data.step import Step
from ingot.workspace.config import content_hash

SIZES = "_bytes"  # bytes of each text; follows `text` wherever that is rewritten


def written(step: Step) -> tuple[str, ...]:
    """The columns in the file of a step: a rewritten text brings its sizes."""
    names = step.writes()
    return (*names, SIZES) if "text" in names else names


def content_name(path: Path) -> str:
    """The name of a file's content: the folders of results are named by what they were made from."""
    return f"{path.parent.name}/{path.name}"


def input_key(shard: Shard, columns: Sequence[str]) -> str:
    """What a step that reads `columns` of the documents alive depends on."""
    alive = "all" if shard.alive is None else shard.alive.name  # named by its content, see decide.py
    return content_hash([alive, [[name, content_name(shard.path_of(name))] for name in sorted(set(columns))]], 24)


def kept_elsewhere(step: Step) -> list[str]:
    """The columns that stay as they were where the step does not look."""
    return [name for name in step.writes() if name == "text" or name in step.reads()]


def full_length(
    found: dict[str, Any],
    step: Step,
    looked_at: NDArray[np.int64],
    alive: NDArray[np.int64],
    before: Mapping[str, pyarrow.ChunkedArray],
    rows: int,
) -> dict[str, pyarrow.Array]:
    """Columns of the rows `looked_at` as columns of all rows: null elsewhere, or as they were
    (`before`: of the rows alive)."""
    columns: dict[str, pyarrow.Array] = {}
    for name in step.writes():
        columns[name] = scatter(found[name], looked_at, rows) if name in found else pyarrow.nulls(rows)
    for name, column in before.items():
        new = pyarrow.large_string() if name == "text" else columns[name].type
        kind = column.type if pyarrow.types.is_null(new) else new
        earlier = scatter(column.cast(kind), alive, rows)
        columns[name] = pyarrow.compute.coalesce(columns[name].cast(kind), earlier)
    if "text" in columns:
        columns[SIZES] = pyarrow.compute.binary_length(columns["text"]).cast(pyarrow.int64())
    return columns


def scatter(values: Any, rows: NDArray[np.int64], length: int) -> pyarrow.Array:
    """`values[i]` in row `rows[i]`, null elsewhere."""
    if isinstance(values, pyarrow.ChunkedArray):
        values = values.combine_chunks()
    if len(rows) == length:
        return values
    index = np.full(length, -1, np.int64)
    index[rows] = np.arange(len(rows))
    return values.take(pyarrow.array(index, mask=index < 0))


def matching(
    where: dict[str, str | list[str]], columns: dict[str, pyarrow.ChunkedArray], length: int
) -> NDArray[np.bool_]:
    """The rows that a `where` selects."""
    chosen = np.ones(length, bool)
    for name, wanted in where.items():
        values = pyarrow.array([wanted] if isinstance(wanted, str) else wanted, pyarrow.string())
        column = columns[name].cast(pyarrow.string())
        chosen &= pyarrow.compute.is_in(column, value_set=values).to_numpy(zero_copy_only=False).astype(bool)
    return chosen


def write_mask(folder: Path, rows: NDArray[np.int64], length: int) -> str:
    """A file of one byte a row, named by its content."""
    mask = np.zeros(length, np.uint8)
    mask[rows] = 1
    name = f"alive-{hashlib.sha256(mask.tobytes()).hexdigest()[:24]}.bin"
    mask.tofile(folder / name)
    return name
