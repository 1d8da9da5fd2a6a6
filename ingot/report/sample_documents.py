"""A few of the documents that curation did not remove, with every column that its steps wrote, for the report.

Samples stand at equal distances in the order of the documents, over all parts. Only their row groups are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

KEPT = 16
TEXT_LIMIT = 2000
VALUE_LIMIT = 200


def kept_samples(parts: Sequence[Path]) -> list[dict[str, Any]]:
    """At most `KEPT` documents: `id`, `source`, `text` (its beginning), `characters`, and `columns` without empty ones."""
    import pyarrow.parquet

    sizes = [pyarrow.parquet.read_metadata(path).num_rows for path in parts]
    count = min(KEPT, sum(sizes))
    wanted = [(2 * index + 1) * sum(sizes) // (2 * count) for index in range(count)]  # the middles of equal stretches
    samples: list[dict[str, Any]] = []
    first = 0
    for path, size in zip(parts, sizes, strict=True):
        samples += rows_of(path, [row - first for row in wanted if first <= row < first + size])
        first += size
    return samples


def rows_of(path: Path, wanted: Sequence[int]) -> list[dict[str, Any]]:
    """Some rows of a part, in order."""
    import pyarrow.parquet

    found = []
    if not wanted:
        return []
    with pyarrow.parquet.ParquetFile(path) as file:
        first = 0
        for group in range(file.num_row_groups):
            size = file.metadata.row_group(group).num_rows
            here = [row - first for row in wanted if first <= row < first + size]
            if here:
                found += [sample(row) for row in file.read_row_group(group).take(here).to_pylist()]
            first += size
    return found


def sample(row: dict[str, Any]) -> dict[str, Any]:
    """A document as the page shows it."""
    text = str(row.get("text") or "")
    columns = {
        name: value if isinstance(value, bool | int | float) else str(value)[:VALUE_LIMIT]
        for name, value in row.items()
        if name not in ("id", "text", "source") and value is not None
    }
    head = {"id": str(row.get("id")), "source": str(row.get("source") or "")}
    return head | {"text": text[:TEXT_LIMIT], "characters": len(text), "columns": columns}
