"""Rows that a program has in memory, as a file that a recipe can name.

Files, folders and names of data sets stay as they are. Rows (mappings, one after the other, from a list, a generator, a data set
of the `datasets` library or a function that gives them) are written as JSON Lines.

Invariant: the file's name has the hash of its content, so that the same rows are the same work whoever made them.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ingot.workspace.errors import DataError
from ingot.workspace.files import PARTIAL

Row = Mapping[str, Any]
Rows = str | Path | Iterable[Any] | Callable[[], Iterable[Any]]
"""A file, several, or rows; a function is called for them."""


def as_files(data: Rows, folder: Path, example: str, column: str | None = None) -> list[str]:
    """The files of some data; rows are written to `folder`. A row that is a text stands for {column: text}.

    `example` is a row as it should be, for errors.
    """
    if callable(data):
        data = data()
    if isinstance(data, str | os.PathLike):
        return [os.fspath(data)]
    if isinstance(data, Mapping):
        raise DataError(
            "a mapping is one row, and rows are wanted", place="the data", fix=f"give a list: [{example}, …]"
        )
    names = (str, os.PathLike) if column is None else (os.PathLike,)  # texts are rows where a row may be a text
    if isinstance(data, list | tuple) and data and all(isinstance(each, names) for each in data):
        return [os.fspath(each) for each in data]
    if not isinstance(data, Iterable):
        raise DataError(f"a {type(data).__name__} holds no rows", place="the data", fix=f"give a list: [{example}, …]")
    return [str(_write_rows(data, folder, example, column))]


def _write_rows(rows: Iterable[Any], folder: Path, example: str, column: str | None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    digest, count = hashlib.sha256(), 0
    name = folder / f"{os.getpid()}-{time.monotonic_ns()}{PARTIAL}"  # as readable to others as every file of a run
    try:
        with name.open("xb") as file:
            for count, row in enumerate(rows, 1):
                line = _line({column: row} if column is not None and isinstance(row, str) else row, count, example)
                digest.update(line)
                file.write(line)
        if not count:
            raise DataError("there are no rows", place="the data", fix=f"give at least one: {example}")
        path = folder / f"{digest.hexdigest()[:16]}.jsonl"
        name.replace(path)
    finally:
        name.unlink(missing_ok=True)
    return path


def _line(row: Any, number: int, example: str) -> bytes:
    place = f"row {number} of the data"
    if not isinstance(row, Mapping):
        fix = f"give rows as {example}; a table of pandas has them as frame.to_dict('records')"
        raise DataError(f"it is a {type(row).__name__}, not a mapping", place=place, fix=fix)
    try:
        return (json.dumps(dict(row), ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8")
    except (TypeError, ValueError) as error:  # ValueError: NaN, or half of a surrogate pair
        raise DataError(
            f"it is not plain JSON: {error}", place=place, fix="give texts, numbers, lists, mappings"
        ) from error
