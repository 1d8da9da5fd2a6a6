"""Decides which source takes which document, by conditions on columns, for a whole batch at once.

A document that is held out belongs to validation alone, every other one to each source whose conditions hold.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ingot.tokens.config import VALIDATION, TokenizeConfig, Where
from ingot.workspace.errors import ArtifactError, DataError

if TYPE_CHECKING:
    import pyarrow

COPIES, QUALITY = "copies", "quality"


def conditions(config: TokenizeConfig) -> dict[str, Where]:
    """Every source and validation, in the order in which they are written."""
    return {**config.sources, VALIDATION: Where(kind=config.validation_kind)}


def columns_needed(config: TokenizeConfig, present: Collection[str]) -> list[str]:
    """The columns to read: those that conditions name, and the quality and the copies if there are any."""
    named = [name for where in conditions(config).values() for name in where.columns()]
    missing = sorted(set(named) - set(present))
    if missing:
        raise ArtifactError(
            f"a source asks for the column {missing[0]!r}, which the documents do not have",
            fix=f"they have {', '.join(sorted(present))}: change the condition, or add a step that writes it to curate",
        )
    return sorted({"id", "text", *named, *({COPIES, QUALITY} & set(present))})


def taken_by(batch: pyarrow.RecordBatch, where: Where) -> NDArray[np.bool_]:
    """Which documents meet all conditions."""
    taken = np.ones(batch.num_rows, np.bool_)
    for name, values in where.values().items():
        taken &= _is_one_of(batch, name, values)
    if where.quality_at_least > 0:
        taken &= quality_of(batch) >= where.quality_at_least
    return taken


def _is_one_of(batch: pyarrow.RecordBatch, name: str, values: list[str]) -> NDArray[np.bool_]:
    import pyarrow
    import pyarrow.compute

    column = batch.column(name)
    if column.null_count:
        row = column.is_null().index(True).as_py()
        raise DataError(f"document {batch.column('id')[row].as_py()!r} has no {name}", fix="run the curate stage again")
    found = pyarrow.compute.is_in(column.cast(pyarrow.string()), value_set=pyarrow.array(values, pyarrow.string()))
    return np.asarray(found.to_numpy(zero_copy_only=False), np.bool_)


def quality_of(batch: pyarrow.RecordBatch) -> NDArray[np.float32]:
    """The quality of each document; nan where it was not judged."""
    if QUALITY not in batch.schema.names:
        return np.full(batch.num_rows, np.nan, np.float32)
    return np.asarray(batch.column(QUALITY).to_numpy(zero_copy_only=False), np.float32)


def copies_of(batch: pyarrow.RecordBatch) -> NDArray[np.int64]:
    """How many times each document is written: its `copies`, or once."""
    if COPIES not in batch.schema.names:
        return np.ones(batch.num_rows, np.int64)
    copies = batch.column(COPIES).fill_null(1).to_numpy(zero_copy_only=False)
    return np.maximum(np.asarray(copies, np.int64), 0)


def routes(batch: pyarrow.RecordBatch, sources: Mapping[str, Where], held: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """[documents, sources]: whether the source takes the document."""
    columns = [taken_by(batch, where) & (held if name == VALIDATION else ~held) for name, where in sources.items()]
    return np.stack(columns, axis=1)
