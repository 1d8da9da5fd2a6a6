"""Reads Parquet and Arrow files: one document a row. Ids made here are NAME:PATH:ROW, counted from 0.

Texts stay in Arrow's columns: a run of rows that need no repair goes through without becoming Python strings, and only rows whose
text is missing, damaged, empty or too long are looked at one by one.

Invariant: memory does not grow with what a dictionary or a shared prefix expands to. Columns are decoded `ROWS` rows at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow
import pyarrow.compute as compute
import pyarrow.parquet
import pyarrow.types as types
from numpy.typing import NDArray

from ingot.data.read.config import BASE_COLUMNS, RowsSource
from ingot.data.read.document import BATCH_BYTES, BATCH_ROWS, Document, schema_of
from ingot.data.read.jsonl import row_document
from ingot.data.read.problem import ReadProblems
from ingot.data.read.split import FilePiece
from ingot.data.read.streams import opened
from ingot.data.text.texts import Texts
from ingot.workspace.errors import DataError

ROWS = 16  # decoded at a time: a long value that many rows share is held so many times at most


def documents_of(
    rows: pyarrow.Table, first: int, piece: FilePiece, source: RowsSource, problems: ReadProblems
) -> Iterator[Document | pyarrow.Table]:
    """The rows of a batch, whose number in the file is `first`: runs of clean rows as tables, the others one by one."""
    clean = clean_rows(rows, source)
    edges = [0, *(np.flatnonzero(clean[1:] != clean[:-1]) + 1).tolist(), len(rows)]
    for start, end in pairwise(edges):
        part = rows.slice(start, end - start)
        names = [f"{piece.identity}:{first + row}" for row in range(start, end)]
        if start < end and clean[start]:
            yield our_columns(part, names, source)
            continue
        for name, values in zip(names, python_rows(part, source.text), strict=True):
            document = row_document(values, name, source, problems)
            if document is not None:
                yield document


def clean_rows(rows: pyarrow.Table, source: RowsSource) -> NDArray[np.bool_]:
    """Which rows may go on as they stand: with a text that needs no repair, and columns of the types we want."""
    none = np.zeros(len(rows), bool)
    schema = schema_of(source)
    for name in (*BASE_COLUMNS[3:], *source.keep):
        if name in rows.column_names and not compatible(rows.schema.field(name).type, schema.field(name).type):
            return none
    if source.id in rows.column_names and not is_id(rows.schema.field(source.id).type):
        return none
    try:
        text = rows.column(source.text).combine_chunks().cast(pyarrow.large_string())
        text.validate(full=True)  # Parquet does not promise UTF-8
    except pyarrow.ArrowException:
        return none
    bad = compute.fill_null(compute.utf8_is_space(text), True).to_numpy(zero_copy_only=False).copy()
    texts = Texts.of(text)
    sizes = np.diff(texts.offsets)
    bad |= (sizes == 0) | (sizes > source.max_document_bytes)
    content = texts.data[texts.offsets[0] : texts.offsets[-1]]
    for byte in (0, 13):  # NUL, carriage return
        at = np.flatnonzero(content == byte) + texts.offsets[0]
        bad[np.searchsorted(texts.offsets, at, side="right") - 1] = True
    return ~bad


def our_columns(rows: pyarrow.Table, names: list[str], source: RowsSource) -> pyarrow.Table:
    """Clean rows with our columns and types."""
    schema = schema_of(source)
    columns: list[Any] = []
    for field in schema:
        original = {"text": source.text, "id": source.id}.get(field.name, field.name)
        if field.name == "source":
            columns.append(pyarrow.repeat(pyarrow.scalar(source.name), len(rows)))
        elif original in rows.column_names:
            columns.append(rows.column(original).combine_chunks().cast(field.type))
        else:
            columns.append(pyarrow.nulls(len(rows), field.type))
    ids = schema.names.index("id")
    missing = compute.equal(compute.fill_null(columns[ids], ""), "")
    columns[ids] = compute.if_else(missing, pyarrow.array(names, pyarrow.string()), columns[ids])
    return pyarrow.table(columns, schema=schema)


def is_id(given: pyarrow.DataType) -> bool:
    """Whether a column holds ids: strings or whole numbers."""
    return bool(
        types.is_integer(given) or types.is_string(given) or types.is_large_string(given) or types.is_null(given)
    )


def compatible(given: pyarrow.DataType, wanted: pyarrow.DataType) -> bool:
    """Whether a column may be cast as a whole; others are looked at value by value."""
    if types.is_string(wanted):
        return bool(types.is_string(given) or types.is_large_string(given) or types.is_null(given))
    if types.is_floating(wanted):
        return bool(types.is_floating(given) or types.is_integer(given) or types.is_null(given))
    return bool((types.is_integer(given) if types.is_integer(wanted) else given == wanted) or types.is_null(given))


def python_rows(rows: pyarrow.Table, text: str) -> Iterator[dict[str, Any]]:
    """The rows as dictionaries; texts as bytes, because they may be no UTF-8."""
    for index, column in enumerate(rows.schema):
        if pyarrow.types.is_string(column.type) or pyarrow.types.is_large_string(column.type):
            rows = rows.set_column(index, column.name, rows.column(index).cast(pyarrow.large_binary()))
    for row in rows.to_pylist():
        for name, value in row.items():
            if name != text and isinstance(value, bytes):
                row[name] = value.decode("utf-8", "replace")
        yield row


def read_parquet(piece: FilePiece, source: RowsSource, problems: ReadProblems) -> Iterator[Document | pyarrow.Table]:
    """The rows of some row groups; a damaged row group is counted and the next one is read."""
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
            at = row
            try:
                for rows in joined(file.iter_batches(ROWS, row_groups=[number], columns=columns, use_threads=False)):
                    yield from documents_of(rows, at, piece, source, problems)
                    at += len(rows)
            except (pyarrow.ArrowException, OSError) as error:
                place = f"{piece.identity}:{at}"
                problems.add(place, "damaged", f"row group {number} ({str(error)[:160]})", size=group.total_byte_size)
            row += group.num_rows


def read_arrow(piece: FilePiece, source: RowsSource, problems: ReadProblems) -> Iterator[Document | pyarrow.Table]:
    """The rows of an Arrow stream, as the `datasets` library writes it, or of an Arrow file."""
    at = 0
    with opened(piece.path) as handle:
        try:
            is_file = handle.read(6) == b"ARROW1"
            handle.seek(0)
            reader = pyarrow.ipc.open_file(handle) if is_file else pyarrow.ipc.open_stream(handle)
            columns = wanted_columns(reader.schema, piece.path, source)
            batches = map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader
            for rows in joined(batch.select(columns) for batch in batches):
                yield from documents_of(rows, at, piece, source, problems)
                at += len(rows)
        except (pyarrow.ArrowException, OSError) as error:
            problems.add(f"{piece.identity}:{at}", "damaged", f"({str(error)[:160]})", size=piece.size)


def joined(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.Table]:
    """Small batches as tables of about `BATCH_BYTES`. What was read before a damaged batch comes before its error."""
    held: list[Any] = []
    rows = size = 0
    damage: Exception | None = None
    try:
        for batch in batches:
            for part in decoded_parts(batch):
                held.append(part)
                rows, size = rows + len(part), size + part.nbytes
                if rows >= BATCH_ROWS or size >= BATCH_BYTES:
                    yield pyarrow.Table.from_batches(held)
                    held, rows, size = [], 0, 0
    except (pyarrow.ArrowException, OSError) as error:
        damage = error
    if held:
        yield pyarrow.Table.from_batches(held)
    if damage is not None:
        raise damage


def decoded_parts(batch: pyarrow.RecordBatch) -> Iterator[pyarrow.RecordBatch]:
    """The batch itself, or `ROWS` rows of it at a time if it has dictionaries: their values are written out."""
    coded = [at for at, field in enumerate(batch.schema) if pyarrow.types.is_dictionary(field.type)]
    for start in range(0, len(batch), ROWS if coded else max(len(batch), 1)):
        part = batch.slice(start, ROWS) if coded else batch
        for at in coded:
            part = part.set_column(at, batch.schema.field(at).name, part.column(at).dictionary_decode())
        yield part


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
