"""Reads labelled texts from files: jsonl(.gz), parquet, csv, tsv; txt: a text a line (labels: fastText's `__label__x text`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet

from ingot.data.read.delimited import table_form, table_rows
from ingot.data.read.problem import Unreadable
from ingot.data.read.streams import whole_lines
from ingot.workspace.errors import DataError

PREFIX = "__label__"


def rows_of(path: Path) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """The rows of a file with their numbers: a dict, or a line of plain text."""
    if not path.is_file():
        raise DataError("no such file", place=str(path), fix="check the path")
    if path.suffix == ".parquet":
        number = 0
        for batch in pyarrow.parquet.ParquetFile(path).iter_batches():
            for row in batch.to_pylist():
                number += 1
                yield number, row
        return
    if form := table_form(str(path)):
        yield from rows_of_table(path, form)
        return
    is_json = ".jsonl" in path.suffixes or ".json" in path.suffixes
    for number, raw in enumerate(lines_of(path), start=1):
        line = raw.decode("utf-8")
        if not line.strip():
            continue
        try:
            yield number, json.loads(line) if is_json else line.strip()
        except json.JSONDecodeError as error:
            raise DataError(f"not JSON: {error}", place=f"{path}, line {number}", fix="one object a line") from None


def rows_of_table(path: Path, form: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a CSV or TSV file."""
    try:
        with path.open("rb") as file:
            yield from table_rows(file, str(path), form)
    except Unreadable as error:
        raise DataError(f"cannot be read: {error}", place=str(path), fix="repair the file") from None


def lines_of(path: Path) -> Iterator[bytes]:
    """The lines of a file, compressed or not."""
    try:
        with path.open("rb") as file:
            yield from whole_lines(file, str(path))
    except Unreadable as error:
        raise DataError(f"cannot be read: {error}", place=str(path), fix="repair the file") from None


def read_texts(path: Path, text: str) -> Iterator[str]:
    """The texts of a file whose rows are all of one class."""
    for number, row in rows_of(path):
        yield row if isinstance(row, str) else field(row, text, path, number)


def read_labelled(path: Path, text: str, label: str) -> Iterator[tuple[str, str]]:
    """Text and label of every row."""
    for number, row in rows_of(path):
        if not isinstance(row, str):
            yield field(row, text, path, number), field(row, label, path, number)
            continue
        first, _, rest = row.partition(" ")
        if not first.startswith(PREFIX):
            raise DataError(f"no label in front: {row[:40]!r}", place=f"{path}, line {number}", fix="`__label__x text`")
        yield rest, first.removeprefix(PREFIX)


def field(row: dict[str, Any], name: str, path: Path, number: int) -> str:
    """A column of a row as text."""
    value = row.get(name)
    if value is None:
        raise DataError(
            f"no column {name!r} (there are {', '.join(sorted(row))})",
            place=f"{path}, row {number}",
            fix="name the columns with --text and --label",
        )
    return str(value)
