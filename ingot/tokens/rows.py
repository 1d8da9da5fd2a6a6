"""Makes the rows of a batch from segments of a source's token stream.

Position p of a stream reads token p and predicts token p + 1. A segment is a run of positions within one document, and a row
is a list of segments. `windows.py` (concatenate and split) and `packed.py` (whole documents) cut the stream into rows; this
module makes tensors of them:

    tokens[t] = stream[p]      targets[t] = stream[p + 1]      positions[t] = t − first position of its segment

Each segment is a document of its own: positions restart, and attention must not cross. `weight` is 1 where the next token
belongs to the same document and 0 elsewhere: at a document's <|endoftext|>, which has nothing to predict, and in padding.
Everything is computed with array operations, whatever the number of documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ingot.tokens.batch import PADDING_DOCUMENT, Batch
from ingot.tokens.shards import MappedSource


@dataclass(frozen=True)
class Row:
    """Segments of a source's stream that follow one another in a row; the rest of the row is padding."""

    source: MappedSource
    starts: NDArray[np.int64]  # the first position of each segment in the stream
    sizes: NDArray[np.int64]  # positions of each segment, at least one
    ends_document: NDArray[np.bool_]  # whether a segment's last position reads the last token of its document


def make_rows(rows: Sequence[Row], length: int, sources: Sequence[int] | None = None) -> Batch:
    """A batch of these rows; `sources` are the numbers that `Batch.sources` gives them."""
    # All rows are made at once, end to end and without padding: the cost of a call is shared by the whole batch.
    sizes = np.concatenate([row.sizes for row in rows])
    ends = np.cumsum(sizes)
    begins = ends - sizes
    segments = np.asarray([len(row.sizes) for row in rows])
    used = np.add.reduceat(sizes, np.cumsum(segments) - segments)  # positions of each row

    positions = np.arange(ends[-1])
    positions -= np.repeat(begins, sizes)
    tokens = np.empty(len(positions), dtype=np.int64)
    after = np.empty(len(sizes), dtype=np.int64)  # the token after each segment
    start = segment = 0
    for row, row_used, row_segments in zip(rows, used.tolist(), segments.tolist(), strict=True):
        tokens[start : start + row_used] = _read(row, positions[start : start + row_used])
        after[segment : segment + row_segments] = row.source.take(row.starts + row.sizes)
        start, segment = start + row_used, segment + row_segments

    ends_document = np.concatenate([row.ends_document for row in rows])
    targets = np.empty_like(tokens)
    targets[:-1] = tokens[1:]
    targets[ends - 1] = np.where(ends_document, 0, after)
    weight = np.ones(len(tokens), dtype=np.float32)
    weight[ends[ends_document] - 1] = 0
    documents = np.repeat(np.arange(len(sizes)) - np.repeat(np.cumsum(segments) - segments, segments), sizes)

    taken = None if len(tokens) == len(rows) * length else np.arange(length) < used[:, None]

    def padded(dense: NDArray[Any], padding: int = 0) -> Tensor:
        if taken is None:
            return torch.from_numpy(dense.reshape(len(rows), length))
        full = np.full(taken.shape, padding, dtype=dense.dtype)
        full[taken] = dense
        return torch.from_numpy(full)

    return Batch(
        padded(tokens),
        padded(targets),
        padded(positions),
        padded(documents, PADDING_DOCUMENT),
        {"weight": padded(weight)},
        None if sources is None else torch.tensor(sources, dtype=torch.int64),
    )


def _read(row: Row, positions: NDArray[np.int64]) -> NDArray[Any]:
    """The tokens of a row, given the position of each within its segment."""
    ends = row.starts + row.sizes
    if (ends[:-1] == row.starts[1:]).all():  # the segments follow each other in the stream, as in a window
        return row.source.read(int(row.starts[0]), int(ends[-1]))
    return row.source.take(positions + np.repeat(row.starts, row.sizes))
