"""A shard of the corpus: some megabytes of documents in Parquet, with the files of their annotations.

    base      Parquet: id, text, source, what the reader knows (url, date, …) and `_bytes`, one row a document
    ids       Arrow: the ids once more, to look one up without reading the others
    columns   annotation -> Parquet file that holds it, as long as the base; null where a step did not look
    alive     a file of one byte a row: 1 if no step has removed the document yet

A document's *location* is one integer, `number << 32 | row`: unique in a run, small, and enough to find it again. Locations
are what tasks exchange; ids stay the user's own.

Invariant: files are never changed after they were written; `key` names the content of all of them together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pyarrow.types
from numpy.typing import NDArray

from ingot.workspace.config import content_hash

ROW_BITS = 32
COLUMNS = "columns.parquet"  # what a task calls the file of the columns that it computed


def location_of(shard: int, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The locations of rows of a shard."""
    return (np.int64(shard) << ROW_BITS) | rows


def shard_and_row(locations: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The inverse of `location_of`."""
    return locations >> ROW_BITS, locations & ((1 << ROW_BITS) - 1)


def ids_path(parquet: Path) -> Path:
    """The file with the ids of a Parquet file that has a column `id`."""
    return parquet.with_suffix(".ids.arrow")


def write_ids(parquet: Path, ids: pyarrow.Array) -> None:
    """Write the ids of a Parquet file to a file of their own, in one batch."""
    batch = pyarrow.record_batch([ids], ["id"])
    with pyarrow.OSFile(str(ids_path(parquet)), "wb") as file, pyarrow.ipc.new_file(file, batch.schema) as writer:
        writer.write_batch(batch)


def read_ids(path: Path, rows: NDArray[np.int64]) -> list[str]:
    """The ids of some rows of a file that `write_ids` wrote; touches only those."""
    with pyarrow.memory_map(str(path)) as file:
        column = pyarrow.ipc.open_file(file).get_batch(0).column(0)
        return [str(column[row]) for row in rows.tolist()]


def write_columns(path: Path, columns: dict[str, Any], *, compress_text: bool = True) -> None:
    """Write columns in one row group: quick to write and to read; texts are not worth a dictionary.

    Compressing the texts that a quick step rewrites would take longer than all else about them.
    """
    table = pyarrow.table(columns)
    texts = {name for name in table.column_names if name in ("text", "id")}
    words = [field.name for field in table.schema if field.name not in texts and _is_string(field)]
    pyarrow.parquet.write_table(
        table,
        path,
        compression={name: "lz4" if compress_text or name != "text" else "none" for name in table.column_names},
        use_dictionary=words or False,
        write_statistics=False,
        row_group_size=max(1, len(table)),
    )


def _is_string(field: pyarrow.Field) -> bool:
    return bool(pyarrow.types.is_string(field.type) or pyarrow.types.is_large_string(field.type))


@dataclass(frozen=True)
class Shard:
    """Documents and what is known about them. Cheap to send to another process: paths, no data."""

    number: int
    key: str
    base: Path
    rows: int
    bytes: int
    columns: tuple[tuple[str, Path], ...] = ()
    alive: Path | None = None

    def rows_alive(self) -> NDArray[np.int64]:
        """The row numbers of the documents that are still there, ascending."""
        if self.alive is None:
            return np.arange(self.rows, dtype=np.int64)
        return np.flatnonzero(np.fromfile(self.alive, np.uint8)).astype(np.int64)

    def locations(self) -> NDArray[np.int64]:
        """The locations of the documents that are still there: one for each row that `read` gives."""
        return location_of(self.number, self.rows_alive())

    def read(self, columns: Sequence[str], *, removed: bool = False) -> pyarrow.Table:
        """The named columns of the documents that are still there; with `removed`, of all.

        A column that this shard's source does not have is null everywhere.
        """
        by_file: dict[Path, list[str]] = {}
        for name in dict.fromkeys(columns):
            by_file.setdefault(self.path_of(name), []).append(name)
        found: dict[str, pyarrow.ChunkedArray] = {}
        for path, names in by_file.items():
            with pyarrow.parquet.ParquetFile(path, memory_map=True) as file:
                here = [name for name in names if name in file.schema_arrow.names]
                table = file.read(columns=here, use_threads=False)
            found |= {name: table.column(name) for name in here}
        nothing = pyarrow.nulls(self.rows)
        table = pyarrow.table({name: found.get(name, nothing) for name in dict.fromkeys(columns)})
        if self.alive is None or removed:
            return table
        return table.take(pyarrow.array(self.rows_alive()))

    def path_of(self, column: str) -> Path:
        """The file that holds a column."""
        return dict(self.columns).get(column, self.base)

    def ids(self, rows: NDArray[np.int64]) -> list[str]:
        """The ids of some rows, whether they are still there or not."""
        return read_ids(ids_path(self.path_of("id")), rows)

    def annotated(self, names: Sequence[str], path: Path, key: str) -> Shard:
        """This shard with more columns; a column of the same name is replaced."""
        others = tuple(pair for pair in self.columns if pair[0] not in names)
        columns = (*others, *((name, path) for name in names))
        return replace(self, columns=columns, key=content_hash([self.key, key], 24))

    def surviving(self, alive: Path, key: str) -> Shard:
        """This shard after a step removed documents."""
        return replace(self, alive=alive, key=content_hash([self.key, key], 24))
