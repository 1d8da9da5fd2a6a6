"""Reads CSV and TSV: a header, then one row each (RFC 4180, as Python's csv: a quoted value may hold line ends).

All values are text; a row that is shorter than the header has nothing in its last columns, and an empty line is no row. Ids
made here are NAME:PATH:ROW, counted from 0.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any, BinaryIO

from ingot.data.read.config import ColumnType, RowsSource
from ingot.data.read.document import Document
from ingot.data.read.jsonl import row_document
from ingot.data.read.problem import ReadProblems
from ingot.data.read.split import FilePiece
from ingot.data.read.streams import WHOLE, compression_of, opened, whole_lines
from ingot.workspace.errors import DataError

DELIMITERS = {"csv": ",", "tsv": "\t"}
LONGEST = WHOLE // 4  # characters of a value, which may have four bytes each in memory
BOOLEANS = {"true": True, "false": False, "1": True, "0": False}


def table_form(path: str) -> str | None:
    """`csv` or `tsv`, by the name of a file; None if it is neither."""
    lower = path.lower()
    form = lower.removesuffix(compression_of(lower)).rpartition(".")[2]
    return form if form in DELIMITERS else None


def parsed_rows(
    file: BinaryIO, path: str, form: str, longest: int = LONGEST
) -> Iterator[tuple[int, dict[str, str | None] | str]]:
    """The rows, each with its first line; of a row that is not CSV, what is wrong with it.

    Bytes that are not UTF-8 become lone surrogates (`surrogateescape`).
    """
    csv.field_size_limit(longest)  # else 131,072; a quote that is never closed would take the whole file for one value
    lines = (f"{line.decode('utf-8', 'surrogateescape')}\n" for line in whole_lines(file, path))
    reader = csv.reader(lines, delimiter=DELIMITERS[form], strict=True)
    header: list[str] | None = None
    while True:
        line = reader.line_num + 1
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield line, str(error)
            continue
        if not values:
            continue
        if header is None:
            header = [values[0].removeprefix("\ufeff"), *values[1:]]
        elif len(values) > len(header):
            yield line, f"{len(values)} values in {len(header)} columns"
        else:
            yield line, dict(zip(header, [*values, *[None] * (len(header) - len(values))], strict=True))


def table_rows(file: BinaryIO, path: str, form: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows, each with its first line; one that cannot be read is an error."""
    for line, row in parsed_rows(file, path, form):
        if isinstance(row, str):
            fix = 'write a value with a comma, a quote or a line end in quotes, and quotes in it as ""'
            raise DataError(f"the row is not {form.upper()}: {row}", place=f"{path}:{line}", fix=fix)
        try:
            "".join(value or "" for value in row.values()).encode("utf-8")
        except UnicodeEncodeError:
            fix = "convert it, as with iconv -t utf-8"
            raise DataError("the row is not UTF-8", place=f"{path}:{line}", fix=fix) from None
        yield line, row


def read_table(piece: FilePiece, source: RowsSource, problems: ReadProblems) -> Iterator[Document]:
    """The documents of a CSV or TSV file; a row that is none costs only itself."""
    with opened(piece.path) as file:
        longest = source.max_document_bytes
        for number, (line, row) in enumerate(parsed_rows(file, piece.path, piece.format, longest)):
            if isinstance(row, str):
                problems.add(f"{piece.identity}:{number}", f"not {piece.format.upper()}", f"line {line}: {row}")
                continue
            if source.text not in row:
                there = f"{source.text!r} (there are: {', '.join(row)}): name it, as in {{files: …, text: COLUMN}}"
                problems.add(piece.identity, "no text column", there, size=piece.size)
                return
            values: dict[str, Any] = {**row, **kept(row, source.keep)}
            if (text := row[source.text]) is not None:
                values[source.text] = text.encode("utf-8", "surrogateescape")
            document = row_document(values, f"{piece.identity}:{number}", source, problems)
            if document is not None:
                yield document


def kept(row: dict[str, str | None], columns: dict[str, ColumnType]) -> dict[str, Any]:
    """The columns to keep, in their types; what is none of its type is null."""
    return {name: _typed(row.get(name), kind) for name, kind in columns.items()}


def _typed(value: str | None, kind: ColumnType) -> Any:
    if value is None or kind == "string":
        return value
    if kind == "boolean":
        return BOOLEANS.get(value.strip().lower())
    try:
        return int(value) if kind == "integer" else float(value)
    except ValueError:
        return None
