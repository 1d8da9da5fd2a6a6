"""Parquet and Arrow files: one document a row. Ids made here are NAME:PATH:ROW, counted from 0.

Texts stay in Arrow's columns; only rows whose text is missing, damaged, empty or too long are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ingot.data.read.columnar import documents_of
from ingot.data.read.config import BASE_COLUMNS, RowsSource
from ingot.data.read.document import BATCH_BYTES, Document
from ingot.data.read.problem import Problems
from ingot.data.read.split import Piece
from ingot.data.read.streams import opened
from ingot.workspace.errors import DataError

if TYPE_CHECKING:
    import pyarrow


def read_parquet(piece: Piece, source: RowsSource, problems: Problems) -> Iterator[Document | pyarrow.Table]:
    """The rows of some row groups; a damaged row group is counted and the next one is read."""
    import pyarrow
    import pyarrow.parquet

    with opened(piece.path) as handle:
        try:
            file = pyarrow.parquet.ParquetFile(handle)
        except (pyarrow.ArrowException, OSError) as error:
            problems.add(piece.identity, "damaged", f"({str(error)[:160]})", size=piece.size)
            return
        columns = wanted_columns(file.schema_arrow, piece.path, source)
        sizes = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
        row = sum(group.num_rows for group in sizes[: piece.start])
        for number in range(piece.start, len(sizes) if piece.end < 0 else piece.end):
            group = sizes[number]
            rows = max(1, BATCH_BYTES * group.num_rows // max(group.total_byte_size, 1))
            at = row
            try:
                for batch in file.iter_batches(
                    min(rows, 65_536), row_groups=[number], columns=columns, use_threads=False
                ):
                    yield from documents_of(pyarrow.table(batch), at, piece, source, problems)
                    at += len(batch)
            except (pyarrow.ArrowException, OSError) as error:
                place = f"{piece.identity}:{at}"
                problems.add(place, "damaged", f"row group {number} ({str(error)[:160]})", size=group.total_byte_size)
            row += group.num_rows


def read_arrow(piece: Piece, source: RowsSource, problems: Problems) -> Iterator[Document | pyarrow.Table]:
    """The rows of an Arrow stream, as the `datasets` library writes it, or of an Arrow file."""
    import pyarrow

    at = 0
    with opened(piece.path) as handle:
        try:
            is_file = handle.read(6) == b"ARROW1"
            handle.seek(0)
            reader = pyarrow.ipc.open_file(handle) if is_file else pyarrow.ipc.open_stream(handle)
            columns = wanted_columns(reader.schema, piece.path, source)
            batches = map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader
            for batch in batches:
                yield from documents_of(pyarrow.table(batch).select(columns), at, piece, source, problems)
                at += len(batch)
        except (pyarrow.ArrowException, OSError) as error:
            problems.add(f"{piece.identity}:{at}", "damaged", f"({str(error)[:160]})", size=piece.size)


def wanted_columns(schema: Any, path: str, source: RowsSource) -> list[str]:
    """The columns to read; a file without the text column is an error."""
    if source.text not in schema.names:
        raise DataError(
            f"there is no column {source.text!r} (there are: {', '.join(schema.names)})",
            place=path,
            fix="name the column that holds the document: {files: …, text: COLUMN}",
        )
    ours = (source.text, source.id, *BASE_COLUMNS[3:], *source.keep)
    return [name for name in dict.fromkeys(ours) if name in schema.names]
