"""The requests that decode together, row by row, and the counts that the host needs before each step.

The host knows without reading tokens how long every context will be, which rows are about to need a page, and which have got
their last token. Counts are numpy arrays, because the engine checks hundreds of rows a thousand times a second. A batch that
follows another takes over the counts of the rows that stay: with the tokens that are in flight they are ahead of the requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ingot.inference.controls import Controls
from ingot.inference.request import Histories, Request
from ingot.inference.rows import NEW


class DecodingBatch:
    """`sizes` are the lengths of the contexts, with the tokens that are in flight, `ends` those at which requests end.

    `sources`: which rows of the batch `before` go on.
    """

    def __init__(
        self,
        requests: Sequence[Request],
        controls: Controls,
        padded: int,
        page: int,
        before: DecodingBatch | None,
        sources: NDArray[Any],
    ) -> None:
        self.requests, self.controls, self.padded, self._page = list(requests), controls, padded, page
        self._counts: NDArray[Any] = np.empty((3, len(requests)), np.int64)
        self._watched: NDArray[Any] = np.zeros(len(requests), bool)
        counts, watched, stops = self._counts, self._watched, set[int]()
        kept = sources != NEW
        if before is not None:
            counts[:, kept], watched[kept] = before._counts[:, sources[kept]], before._watched[sources[kept]]
            stops |= set(before._stops.tolist())
        for row in np.flatnonzero(~kept).tolist():
            one = self.requests[row]
            counts[:, row] = one.size, len(one.pages) * page, len(one.prompt) + one.limit
            watched[row] = one.watched
            stops.update(one.sampling.stop_tokens)
        self._stops: NDArray[Any] = np.array(sorted(stops), dtype=np.int64)
        self.sizes, self._held, self.ends = counts
        self.dead = 0  # rows that have no request any more
        self._alive = np.ones(len(requests), dtype=bool)
        self._fallen: list[int] = []  # rows that died since the last launch
        self._row_of = {id(request): row for row, request in enumerate(requests)}

    def __len__(self) -> int:
        return len(self.requests)

    @property
    def reach(self) -> int:
        """One more than the largest position that the next step reads."""
        return int(self.sizes.max())

    def row(self, request: Request) -> int | None:
        """The request's row, if it is here and alive."""
        row = self._row_of.get(id(request))
        return row if row is not None and self._alive[row] else None

    def kill(self, rows: list[int]) -> None:
        """These rows, which are alive, have no request any more."""
        self._alive[rows] = False
        self.dead += len(rows)
        self._fallen += rows

    def take_fallen(self) -> list[int]:
        """Rows that died since this was asked last: the device learns of all of them at once."""
        fallen, self._fallen = self._fallen, []
        return fallen

    def finishing_rows(self) -> list[int]:
        """Rows whose last token is in flight: they read nothing more."""
        return np.flatnonzero(self._alive & (self.sizes >= self.ends)).tolist()

    def may_end(self, ids: NDArray[Any], sizes: NDArray[Any]) -> list[int]:
        """Rows that may end with the token that they have got; `sizes` are the lengths of the contexts with it."""
        stops = (ids[:, None] == self._stops).any(axis=1)  # of any request: some of these rows go on
        return np.flatnonzero(self._watched | (sizes >= self.ends) | stops).tolist()

    def short(self) -> list[int]:
        """Rows that have no page for what they read next."""
        return np.flatnonzero(self._alive & (self.sizes > self._held) & (self.sizes < self.ends)).tolist()

    def grown(self, row: int) -> None:
        """The row got another page."""
        self._held[row] += self._page

    def advance(self) -> None:
        """A step has been launched."""
        self.sizes += 1

    # ---- where a row may get several tokens at a time (speculate/)

    def spare(self, row: int) -> int:
        """How many drafts the row has pages for, besides its last token."""
        return int(self._held[row] - self.sizes[row])

    def move(self, counts: Sequence[int]) -> None:
        """The rows have got so many tokens."""
        self.sizes += np.array(counts)


def rows_before(requests: Sequence[Request], before: DecodingBatch | None) -> NDArray[Any]:
    """The row that each request has in the batch before, or NEW."""
    if before is None:
        return np.full(len(requests), NEW, dtype=np.int64)
    rows = np.array([before._row_of.get(id(one), NEW) for one in requests], dtype=np.int64)
    return np.where((rows != NEW) & before._alive[rows], rows, NEW)


def follow_controls(
    requests: Sequence[Request],
    before: DecodingBatch | None,
    sources: NDArray[Any],
    device: torch.device,
    vocabulary_size: int,
) -> Controls:
    """The sampling options of the requests of a batch that follows another."""
    known = None if before is None else before.controls
    samplings = [request.sampling for request in requests]
    return Controls(samplings, device, vocabulary_size, Histories(requests), before=known, sources=sources)
