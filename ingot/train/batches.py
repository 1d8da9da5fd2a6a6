"""Cutting a batch into micro-batches."""

from __future__ import annotations

from ingot.tokens.batch import Batch


def split_rows(batch: Batch, rows: int) -> list[Batch]:
    """The batch in pieces of at most `rows` rows; a document never spans two rows, so nothing is separated."""
    return [
        Batch(
            batch.tokens[start : start + rows],
            batch.targets[start : start + rows],
            batch.positions[start : start + rows],
            batch.documents[start : start + rows],
            {name: stream[start : start + rows] for name, stream in batch.streams.items()},
        )
        for start in range(0, len(batch.tokens), rows)
    ]
