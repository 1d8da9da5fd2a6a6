"""Rows of files: JSON Lines, Parquet, Arrow, compressed or not, and data sets of the `datasets` library.

data/train.jsonl.gz                    a file
hf:openai/gsm8k:main:test              a data set of the hub, its configuration and split; or a folder of `save_to_disk`
hf:my_folder:train                     without a configuration
runs/prompts/curate-0123abcd           the documents of a finished curate stage
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

from ingot.workspace.errors import DataError
from ingot.workspace.files import fingerprint

HUB = "hf:"
DOCUMENTS = "documents"  # where a curate stage leaves them
Row = dict[str, Any]


def read_rows(spec: str) -> list[tuple[str, Row]]:
    """The rows of a file or data set, each with its place for messages."""
    if spec.startswith(HUB):
        return [(f"{spec}: row {number}", row) for number, row in enumerate(_dataset_rows(spec), 1)]
    return [row for path in _files(spec) for row in _file_rows(str(path), fingerprint(path))]


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
    if spec.endswith(".parquet"):
        import pyarrow.parquet

        rows = pyarrow.parquet.read_table(spec).to_pylist()
        return [(f"{spec}: row {number}", row) for number, row in enumerate(rows, 1)]
    return [(f"{spec}:{number}", row) for number, row in _json_lines(spec)]


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


def _object(line: bytes, place: str) -> Row:
    try:
        row = json.loads(line)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"the line is no JSON: {error}", place=place, fix="one object a line, in UTF-8") from error
    if not isinstance(row, dict):
        raise DataError("the line is no JSON object", place=place, fix='write {"question": …, "answer": …}')
    return row


def _dataset_rows(spec: str) -> list[Row]:
    import pyarrow.ipc
    import pyarrow.parquet

    from ingot.data.read.config import DatasetSource
    from ingot.data.read.dataset import dataset_files

    name, *parts = spec.removeprefix(HUB).split(":")
    if not name or len(parts) not in (1, 2):
        raise DataError(f"{spec} names no data set", fix=f"write {HUB}NAME:SPLIT or {HUB}NAME:CONFIGURATION:SPLIT")
    configuration = parts[0] if len(parts) == 2 else None
    rows: list[Row] = []
    for found, form in dataset_files(DatasetSource(dataset=name, configuration=configuration, split=parts[-1])):
        if form == "parquet":
            rows += pyarrow.parquet.read_table(found.path).to_pylist()
        else:
            with pyarrow.memory_map(found.path) as file:
                rows += pyarrow.ipc.open_stream(file).read_all().to_pylist()
    return rows
