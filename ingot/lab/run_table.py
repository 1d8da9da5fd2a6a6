"""Read a table of finished runs: CSV or JSONL, also with .gz, from whatever laboratory.

Columns are found by their usual names or named by the user; a dotted name goes into nested objects and lists of JSONL
(`hyperparameters.params`, `results.1.loss`). A row that cannot be used is an error that names it, never left out.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingot.lab.fit_law import MeasuredRun
from ingot.lab.loss_law import TRAINING
from ingot.workspace.errors import DataError, listed

USUAL = {
    "parameters": ("N", "parameters", "params"),
    "tokens": ("D", "tokens"),
    "flops": ("C", "flops"),
    "loss": ("loss",),
}
Row = tuple[str, Mapping[str, Any]]  # where it stands in the file, and its values


@dataclass(frozen=True)
class Columns:
    """What the user calls the columns; None: a usual name. Without tokens, D = C / 6N from a column of training FLOPs."""

    parameters: str | None = None
    tokens: str | None = None
    flops: str | None = None
    loss: str | None = None
    run: str | None = None


@dataclass(frozen=True)
class RunTable:
    """The runs of a table, and the columns that they were read from."""

    rows: tuple[MeasuredRun, ...]
    columns: Columns


def read_runs(path: Path, columns: Columns, where: Mapping[str, str] | None = None) -> RunTable:
    """The runs of a table; with `where` those with these values."""
    table = _read(path)
    if not table:
        raise DataError("the table has no rows", place=str(path), fix="give a CSV with a header, or JSONL")
    if columns.tokens and columns.flops:
        raise DataError("tokens are given twice", place=str(path), fix="name a column of tokens or of FLOPs, not both")
    for key, wanted in (where or {}).items():
        values = sorted({str(_value(row, key, at)) for at, row in table})
        table = [(at, row) for at, row in table if str(_value(row, key, at)) == wanted]
        if not table:
            raise DataError(f"no row has {key} = {wanted}", place=str(path), fix=f"its values are {listed(values)}")
    first = table[0][1]
    by_flops = columns.flops is not None or (columns.tokens is None and not _usual(first, "tokens"))
    found = Columns(
        parameters=columns.parameters or _named(first, "parameters", path),
        tokens=None if by_flops else columns.tokens or _named(first, "tokens", path),
        flops=(columns.flops or _named(first, "flops", path, instead="tokens")) if by_flops else None,
        loss=columns.loss or _named(first, "loss", path),
        run=columns.run,
    )
    return RunTable(tuple(_measured(row, at, found) for at, row in table), found)


def _measured(row: Mapping[str, Any], at: str, columns: Columns) -> MeasuredRun:
    """One row as a run; a row is a run of its own unless a column says which rows belong together."""
    assert columns.parameters is not None and columns.loss is not None
    parameters = _number(row, columns.parameters, at)
    if columns.flops is not None:
        tokens = _number(row, columns.flops, at) / (TRAINING * parameters)
    else:
        assert columns.tokens is not None
        tokens = _number(row, columns.tokens, at)
    run = at if columns.run is None else str(_value(row, columns.run, at))
    return MeasuredRun(parameters, tokens, _number(row, columns.loss, at), run)


def _usual(row: Mapping[str, Any], what: str) -> list[str]:
    """The columns with a usual name of this number."""
    return [name for name in row if name in USUAL[what]]


def _named(row: Mapping[str, Any], what: str, path: Path, instead: str | None = None) -> str:
    """The only column with a usual name."""
    names = _usual(row, what)
    if len(names) == 1:
        return names[0]
    option = instead or what
    problem = f"no column of {option}" if not names else f"several columns of {what}: {listed(names)}"
    raise DataError(problem, place=str(path), fix=f"name it, --{option} COLUMN: one of {listed(sorted(row), 20)}")


def _number(row: Mapping[str, Any], column: str, at: str) -> float:
    """A number above zero."""
    value = _value(row, column, at)
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        fix = "take the row out, or choose rows with --where"
        raise DataError(f"{column} is {value!r}, not a number above zero", place=at, fix=fix)
    return number


def _value(row: Mapping[str, Any], column: str, at: str) -> Any:
    """The value of a column, or of a path into nested objects."""
    if column in row:
        return row[column]
    value: Any = row
    for step in column.split("."):
        if isinstance(value, Mapping) and step in value:
            value = value[step]
        elif isinstance(value, Sequence) and not isinstance(value, str) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            raise DataError(f"there is no {column}", place=at, fix=f"the row has {listed(sorted(row), 20)}")
    return value


def _read(path: Path) -> list[Row]:
    """Rows with their line numbers."""
    if not path.is_file():
        raise DataError("there is no such table", place=str(path), fix="give a CSV with a header, or JSONL")
    kind = path.suffixes[-2:][0] if path.suffix == ".gz" else path.suffix
    if kind not in (".csv", ".jsonl"):
        raise DataError("a table is .csv or .jsonl, also with .gz", place=str(path), fix="write it as one of these")
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    text = content.decode("utf-8-sig")
    if kind == ".csv":
        reader = csv.DictReader(io.StringIO(text))
        return [(f"{path}:{reader.line_num}", row) for row in reader]
    rows: list[Row] = []
    for number, line in enumerate(text.splitlines(), start=1):
        at = f"{path}:{number}"
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"this is not JSON: {error}", place=at, fix="write one object a line") from error
        if not isinstance(row, dict):
            raise DataError("this is not an object", place=at, fix="write one object a line")
        rows.append((at, row))
    return rows
