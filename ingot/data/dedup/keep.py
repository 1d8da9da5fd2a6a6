"""Decides which copy stays: one rule for all steps that remove copies.

Copies are ordered by (preference descending, tie, location); the first of that order stays.

    first     preference 0, tie 0                        the order of the documents decides
    longest   preference = bytes of the text             tie = hash of the id
    newest    preference = the date as a number          tie = hash of the id
    best      preference = the quality                   tie = hash of the id

Invariant: except for `first`, the order of the documents decides nothing as long as their ids differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ingot.data.dedup.config import KeepConfig
from ingot.data.native import Offsets, hash_each
from ingot.data.text.texts import Texts
from ingot.workspace.errors import DataError

if TYPE_CHECKING:
    import pyarrow

FIELDS = [("location", "<i8"), ("preference", "<f8"), ("tie", "<u8"), ("name", "<i8")]
"""What a record about a document carries so that `best_first` can order it; `name` names the cluster it leads."""

ID_SEED = np.uint64(1)


def describe(records: NDArray[np.void], documents: pyarrow.Table, locations: Offsets, step: KeepConfig) -> None:
    """Fill in `FIELDS` of the records, one a document."""
    import pyarrow

    ids = Texts.of(documents.column("id").cast(pyarrow.string()))
    hashes = hash_each(ids.data, ids.offsets, ID_SEED)
    records["location"] = locations
    records["name"] = hashes.view(np.int64)
    records["tie"] = 0 if step.keep == "first" else hashes
    records["preference"] = preferences(documents, step)


def preferences(documents: pyarrow.Table, step: KeepConfig) -> NDArray[np.float64]:
    """A number for each document: the higher, the sooner it stays."""
    import pyarrow
    import pyarrow.compute

    name = step.preference_column()
    if step.keep == "longest":
        return np.diff(Texts.of(documents.column("text")).offsets).astype(np.float64)
    if name is None:
        return np.zeros(len(documents))
    column = documents.column(name)
    if step.keep == "newest" and not is_number(column.type):
        return dates(column, name)
    if not is_number(column.type) and not pyarrow.types.is_null(column.type):
        raise DataError(
            f"column `{name}` holds {column.type}, not numbers",
            place=f"{step.step}: keep: {step.keep}",
            fix="name a column of numbers in keep_column",
        )
    values = np.asarray(column.cast(pyarrow.float64()).to_numpy(), np.float64)
    return np.where(np.isnan(values), -np.inf, values)


def is_number(kind: pyarrow.DataType) -> bool:
    """Whether an Arrow type is an integer or a float."""
    import pyarrow

    return bool(pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind))


def dates(column: pyarrow.ChunkedArray, name: str) -> NDArray[np.float64]:
    """Dates as numbers yyyymmddhhmmss: ISO 8601, complete or only its beginning; what is not a date is oldest of all.

    The time zone is not looked at: to tell crawls apart, days are enough.
    """
    import pyarrow
    import pyarrow.compute as compute

    text = column.cast(pyarrow.string()).combine_chunks()
    is_date = compute.match_substring_regex(text, r"^\s*\d{4}(-?\d{2})?(-?\d{2})?([^0-9].*)?$").fill_null(False)
    if len(text) > text.null_count and not compute.any(is_date).as_py():
        example = next(value for value in text.to_pylist() if value is not None)
        raise DataError(
            f"column `{name}` holds no date: {example!r:.60}",
            place="keep: newest",
            fix="use ISO 8601 (2024-05-31 or 2024-05-31T12:00:00Z), or numbers",
        )
    digits = compute.utf8_slice_codeunits(compute.replace_substring_regex(text, r"[^0-9]", ""), 0, 14)
    padded = compute.utf8_rpad(compute.if_else(is_date, digits, "0"), 14, "0")
    return np.asarray(padded.cast(pyarrow.float64()).to_numpy(zero_copy_only=False), np.float64)


def best_first(records: NDArray[np.void]) -> Offsets:
    """The order of copies in which the first one stays."""
    return np.lexsort((records["location"], records["tie"], -records["preference"]))
