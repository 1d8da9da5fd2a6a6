"""Decides which copy stays: one rule for all steps that remove copies.

Copies are ordered by (preference descending, tie, location); the first of that order stays.

    first     preference 0, tie 0                        the order of the documents decides
    longest   preference = bytes of the text             tie = hash of the id
    newest    preference = the date as a number          tie = hash of the id
    best      preference = the quality                   tie = hash of the id

Invariant: except for `first`, the order of the documents decides nothing as long as their ids differ.
"""

from __future__ import annotations

from typing import Literal, Self

import numpy as np
import pyarrow
import pyarrow.compute as compute
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ingot.data.native import Offsets, hash_each
from ingot.data.step import AcrossDocuments
from ingot.data.text.texts import Texts
from ingot.workspace.errors import DataError

Keep = Literal["first", "longest", "newest", "best"]

KEEP_DESCRIPTION = (
    "which copy stays: `first` in the order of the documents, `longest` text, `newest` date, `best` quality. Among "
    "equals the hash of the id decides, which prefers no source and does not depend on the order"
)


class KeepConfig(AcrossDocuments):
    """A step that removes copies: the options that say which copy stays."""

    keep: Keep = Field(default="longest", description=KEEP_DESCRIPTION)
    keep_column: str | None = Field(
        default=None,
        description="column with the date (ISO 8601, a timestamp or a number) or the quality that `keep` compares; null: "
        "`date` for `newest`, `quality` for `best`. A missing value loses",
    )

    @model_validator(mode="after")
    def _compares_a_column(self) -> Self:
        if self.keep not in ("newest", "best"):
            self.refuse("keep_column", because=f"keep: {self.keep} compares no column", instead="keep newest or best")
        return self

    def preference_column(self) -> str | None:
        """The column that `keep` compares, if it compares one."""
        return {"newest": self.keep_column or "date", "best": self.keep_column or "quality"}.get(self.keep)

    def reads(self) -> tuple[str, ...]:
        column = self.preference_column()
        return tuple(dict.fromkeys((*super().reads(), "id", *([column] if column else []))))


FIELDS = [("location", "<i8"), ("preference", "<f8"), ("tie", "<u8"), ("name", "<i8")]
"""What a record about a document carries so that `best_first` can order it; `name` names the cluster it leads."""

ID_SEED = np.uint64(1)


def describe(records: NDArray[np.void], documents: pyarrow.Table, locations: Offsets, step: KeepConfig) -> None:
    """Fill in `FIELDS` of the records, one a document."""
    ids = Texts.of(documents.column("id").cast(pyarrow.string()))
    hashes = hash_each(ids.data, ids.offsets, ID_SEED)
    records["location"] = locations
    records["name"] = hashes.view(np.int64)
    records["tie"] = 0 if step.keep == "first" else hashes
    records["preference"] = preferences(documents, step)


def preferences(documents: pyarrow.Table, step: KeepConfig) -> NDArray[np.float64]:
    """A number for each document: the higher, the sooner it stays."""
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
    return bool(pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind))


def dates(column: pyarrow.ChunkedArray, name: str) -> NDArray[np.float64]:
    """Dates as numbers yyyymmddhhmmss: ISO 8601, complete or only its beginning; what is not a date is oldest of all.

    The time zone is not looked at: to tell crawls apart, days are enough.
    """
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
