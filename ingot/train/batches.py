"""Cuts a step's batch into micro-batches, and distributes them over ranks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from ingot.tokens.batch import PADDING_DOCUMENT, Batch

POSITIONS = 64  # rows of packed samples are as long as a multiple of this


def split_rows(batch: Batch, rows: int) -> list[Batch]:
    """The batch in pieces of at most `rows` rows; a document never spans two rows, so nothing is separated."""
    return [
        Batch(
            batch.tokens[start : start + rows],
            batch.targets[start : start + rows],
            batch.positions[start : start + rows],
            batch.documents[start : start + rows],
            {name: stream[start : start + rows] for name, stream in batch.streams.items()},
            None if batch.sources is None else batch.sources[start : start + rows],
            vectors={name: vector[start : start + rows] for name, vector in batch.vectors.items()},
        )
        for start in range(0, len(batch.tokens), rows)
    ]


def deal(batches: Sequence[Batch], rank: int, world: int) -> list[Batch]:
    """Every `world`-th of a step's micro-batches. Whole ones: both halves of a preference pair stay together.

    All ranks must make the same number of passes, because ranks exchange data in each pass; the last ranks
    get batches of nothing but padding for those that are missing.
    """
    mine = list(batches[rank::world])
    return mine + [padding_like(batches[0])] * (-(-len(batches) // world) - len(mine))


def lengthen(batch: Batch, multiple: int) -> Batch:
    """The batch with padding at the end of its rows, whose length becomes a multiple of this."""
    missing = -batch.tokens.shape[1] % multiple
    if not missing:
        return batch
    return Batch(
        pad(batch.tokens, (0, missing)),
        pad(batch.targets, (0, missing)),
        pad(batch.positions, (0, missing)),
        pad(batch.documents, (0, missing), value=PADDING_DOCUMENT),
        {name: pad(stream, (0, missing)) for name, stream in batch.streams.items()},
        batch.sources,
        vectors={name: pad(x, (0, 0) * (x.dim() - 2) + (0, missing)) for name, x in batch.vectors.items()},
    )


def round_shapes(batches: Sequence[Batch]) -> list[Batch]:
    """The micro-batches of a step with rows and positions of padding, so that steps of any size have one of a few shapes.

    On a GPU code is compiled, and a graph captured, for every shape. Of several micro-batches the last is filled up to the rows
    of the others, of which there are as many in every step. The rows of a single one become a multiple of a power of two, of
    which there are four to eight in it: 17 to 32 rows become 20, 24, 28 or 32.
    """
    rows = max(len(batch.tokens) for batch in batches)
    if len(batches) == 1:
        rows += -rows % _step(rows)
    return [_add_rows(lengthen(batch, POSITIONS), rows - len(batch.tokens)) for batch in batches]


def _step(rows: int) -> int:
    return 1 << max(0, (rows - 1).bit_length() - 3)


def _add_rows(batch: Batch, missing: int) -> Batch:
    """The batch and so many rows of padding."""
    if not missing:
        return batch
    more = padding_like(batch)

    def add(given: Tensor, padding: Tensor) -> Tensor:
        return torch.cat([given, padding.expand(missing, *padding.shape[1:])])

    return Batch(
        add(batch.tokens, more.tokens),
        add(batch.targets, more.targets),
        add(batch.positions, more.positions),
        add(batch.documents, more.documents),
        {name: add(stream, more.streams[name]) for name, stream in batch.streams.items()},
        None if batch.sources is None or more.sources is None else add(batch.sources, more.sources),
        vectors={name: add(vector, more.vectors[name]) for name, vector in batch.vectors.items()},
    )


def padding_like(batch: Batch) -> Batch:
    """One row of padding, with the streams of `batch`."""
    tokens = torch.zeros_like(batch.tokens[:1])
    return Batch(
        tokens,
        tokens,
        tokens,
        torch.full_like(tokens, PADDING_DOCUMENT),
        {name: torch.zeros_like(stream[:1]) for name, stream in batch.streams.items()},
        None if batch.sources is None else torch.zeros_like(batch.sources[:1]),
        vectors={name: torch.zeros_like(vector[:1]) for name, vector in batch.vectors.items()},
    )
