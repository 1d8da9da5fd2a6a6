"""Rows of files: JSON Lines, a JSON array, CSV, TSV, Parquet, Arrow, compressed or not, and data sets of the `datasets` library.

data/train.jsonl.gz                    a file
data/alpaca.json                       an array of objects
data/alpaca.csv                        a header, then a row each; all values are text
hf:openai/gsm8k:main:test              a data set of the hub, its configuration and split; or a folder of `save_to_disk`
hf:my_folder:train                     without a configuration
runs/prompts/curate-0123abcd           the documents of a finished curate stage
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingot.workspace.errors import DataError
from ingot.workspace.files import fingerprint

if TYPE_CHECKING:
    import pyarrow

HUB = "hf:"
DOCUMENTS = "documents"  # where a curate stage leaves them
ARROW_BATCH = 512  # rows of a Parquet or Arrow file that are in memory at a time
Row = dict[str, Any]


def read_rows(spec: str) -> list[tuple[str, Row]]:
    """The rows of a file or data set, each with its place for messages."""
    if spec.startswith(HUB):
        return list(stream_rows(spec))
    return [row for path in _files(spec) for row in _file_rows(str(path), fingerprint(path))]


def stream_rows(spec: str) -> Iterator[tuple[str, Row]]:
    """The same rows, one at a time: a file of any size takes the memory of a few rows."""
    if spec.startswith(HUB):
        rows = (row for table in _dataset_tables(spec) for row in table.to_pylist())
        yield from ((f"{spec}: row {number}", row) for number, row in enumerate(rows, 1))
        return
    for path in _files(spec):
        yield from _stream_file(str(path))


def _files(spec: str) -> list[Path]:
    """The file, or the parts of a curated folder."""
    path = Path(spec)
    if path.is_file():
        return [path]
    parts = sorted((path / DOCUMENTS if (path / DOCUMENTS).is_dir() else path).glob("part-*.parquet"))
    if not parts:
        fix = f"give a file, the folder of a finished curate stage, or {HUB}NAME:SPLIT for a data set"
        raise DataError("there is no such file", place=spec, fix=fix)
    return parts


def fingerprints(specs: tuple[str, ...]) -> dict[str, str]:
    """Fingerprints of the files that are there; a missing one is an error when it is read."""
    there = [spec for spec in specs if Path(spec).exists()]
    return {f"{Path(spec).name}/{path.name}": fingerprint(path) for spec in there for path in _files(spec)}


def need(row: Row, column: str, kind: type, place: str) -> Any:
    """A value of a row that must be of this type."""
    if not isinstance(row.get(column), kind):
        found = f"is {type(row[column]).__name__}" if column in row else f"is missing; there are: {', '.join(row)}"
        raise DataError(f"the column {column!r} {found}", place=place, fix=f"give it as {kind.__name__}")
    return row[column]


@lru_cache(maxsize=16)
def _file_rows(spec: str, content: str) -> list[tuple[str, Row]]:
    """The rows of a file with this content: several stages and suites read the same files."""
    return list(_stream_file(spec))


def _stream_file(spec: str) -> Iterator[tuple[str, Row]]:
    from ingot.data.read.delimited import table_form

    if form := table_form(spec):
        yield from ((f"{spec}:{line}", row) for line, row in _table_rows(spec, form))
    elif spec.endswith((".parquet", ".arrow")):
        rows = (row for table in _tables(spec) for row in table.to_pylist())
        yield from ((f"{spec}: row {number}", row) for number, row in enumerate(rows, 1))
    elif _is_array(spec):
        yield from ((f"{spec}: row {number}", row) for number, row in enumerate(_json_array(spec), 1))
    else:
        yield from ((f"{spec}:{number}", row) for number, row in _json_lines(spec))


def _tables(path: str) -> Iterator[pyarrow.RecordBatch]:
    """A Parquet or Arrow file, some rows at a time."""
    import pyarrow.ipc
    import pyarrow.parquet

    try:
        if path.endswith(".parquet"):
            with pyarrow.parquet.ParquetFile(path) as file:
                yield from file.iter_batches(ARROW_BATCH)
            return
        with pyarrow.memory_map(path) as mapped:
            try:
                yield from pyarrow.ipc.open_stream(mapped)
            except pyarrow.ArrowInvalid:  # the other of Arrow's two forms, which has an index at its end
                whole = pyarrow.ipc.open_file(mapped)
                yield from (whole.get_batch(number) for number in range(whole.num_record_batches))
    except (OSError, pyarrow.ArrowException) as error:
        raise DataError(f"the file cannot be read: {error}", place=path, fix="repair it, or make it anew") from error


def _is_array(spec: str) -> bool:
    """Whether a JSON file is one array, and not an object a line: files of both kinds are called .json."""
    from ingot.data.read.problem import Unreadable
    from ingot.data.read.streams import chunks, compression_of

    try:
        with Path(spec).open("rb") as file:
            return next(filter(None, map(bytes.lstrip, chunks(file, compression_of(spec)))), b"").startswith(b"[")
    except Unreadable as error:
        raise DataError(f"the file cannot be read: {error}", place=spec, fix="repair it, or make it anew") from error


def _json_array(spec: str) -> list[Row]:
    from ingot.data.read.problem import Unreadable
    from ingot.data.read.streams import whole

    try:
        with Path(spec).open("rb") as file:
            text = whole(file, spec)
    except Unreadable as error:
        fix = "write it as JSONL, one object a line: `jq -c '.[]' FILE.json > FILE.jsonl`"
        raise DataError(f"the file cannot be read: {error}", place=spec, fix=fix) from error
    try:
        rows = json.loads(text)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        fix = "write an array of objects; a file of one object a line is called .jsonl"
        raise DataError(f"the file is not JSON: {error}", place=spec, fix=fix) from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DataError("the file is not an array of objects", place=spec, fix='write [{"messages": …}, …]')
    return rows


def _json_lines(spec: str) -> Iterator[tuple[int, Row]]:
    from ingot.data.read.problem import Unreadable
    from ingot.data.read.streams import whole_lines

    try:
        with Path(spec).open("rb") as file:
            for number, line in enumerate(whole_lines(file, spec), 1):
                if line.strip():
                    yield number, _object(line, f"{spec}:{number}")
    except Unreadable as error:
        raise DataError(f"the file cannot be read: {error}", place=spec, fix="repair it, or make it anew") from error


def _table_rows(spec: str, form: str) -> Iterator[tuple[int, Row]]:
    from ingot.data.read.delimited import table_rows
    from ingot.data.read.problem import Unreadable

    try:
        with Path(spec).open("rb") as file:
            yield from table_rows(file, spec, form)
    except Unreadable as error:
        raise DataError(f"the file cannot be read: {error}", place=spec, fix="repair it, or make it anew") from error


def _object(line: bytes, place: str) -> Row:
    try:
        row = json.loads(line)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"the line is not JSON: {error}", place=place, fix="one object a line, in UTF-8") from error
    if not isinstance(row, dict):
        raise DataError("the line is not a JSON object", place=place, fix='write {"question": …, "answer": …}')
    return row


def _dataset_tables(spec: str) -> Iterator[pyarrow.RecordBatch]:
    from ingot.data.read.config import DatasetSource
    from ingot.data.read.dataset import dataset_files

    name, *parts = spec.removeprefix(HUB).split(":")
    if not name or len(parts) not in (1, 2):
        raise DataError(f"{spec} names no data set", fix=f"write {HUB}NAME:SPLIT or {HUB}NAME:CONFIGURATION:SPLIT")
    configuration = parts[0] if len(parts) == 2 else None
    for found, _ in dataset_files(DatasetSource(dataset=name, configuration=configuration, split=parts[-1])):
        yield from _tables(found.path)
