"""Cuts a step's batch into micro-batches, and distributes them over ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import pad

from ingot.tokens.batch import PADDING_DOCUMENT, Batch

POSITIONS = 64  # rows of packed samples are as long as a multiple of this
LARGER = 1.25  # times as large as it would have to be, a shape that has been there is always taken again
OFTEN = 8  # times that a still larger one is


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
    return _to_length(batch, batch.tokens.shape[1] + -batch.tokens.shape[1] % multiple)


def _to_length(batch: Batch, length: int) -> Batch:
    """The batch with padding at the end of its rows, which become this long."""
    missing = length - batch.tokens.shape[1]
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


class Shapes:
    """Gives steps of varying sizes one of a few shapes, by rows and positions of padding.

    On a GPU code is compiled, and a graph captured, for every shape: some seconds. Of several micro-batches the last is filled up
    to the rows of the others, of which there are as many in every step. A shape that a step had before is taken again if the
    batches fit into it; where it is more than a quarter larger, until such steps have come so often that a shape of their own
    pays. The rows of that become a multiple of a power of two, of which there are four to eight in it: 17 to 32 rows become 20,
    24, 28 or 32.
    """

    def __init__(self) -> None:
        self._seen: set[tuple[int, int]] = set()  # rows and positions
        self._missed: Counter[tuple[int, int]] = Counter()  # what would have been better

    def round(self, batches: Sequence[Batch]) -> list[Batch]:
        """The micro-batches of a step in one shape."""
        rows, length = (max(batch.tokens.shape[axis] for batch in batches) for axis in (0, 1))
        own = rows + (-rows % _step(rows) if len(batches) == 1 else 0), length + -length % POSITIONS
        fitting = [(r, n) for r, n in self._seen if r >= rows and n >= length]
        shape = min(fitting, key=_positions, default=own)
        if _positions(shape) > LARGER * rows * length:
            self._missed[own] += 1
            shape = own if self._missed[own] > OFTEN else shape
        self._seen.add(shape)
        return [_add_rows(_to_length(batch, shape[1]), shape[0] - len(batch.tokens)) for batch in batches]


def _positions(shape: tuple[int, int]) -> int:
    return shape[0] * shape[1]


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
