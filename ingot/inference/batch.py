"""The requests that decode together, row by row, and the counts that the host needs before each step.

The host knows without reading tokens how long every context will be, which rows are about to need a page, and which have got
their last token. Counts are numpy arrays, because the engine checks hundreds of rows a thousand times a second.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingot.inference.controls import Controls
from ingot.inference.request import Request


class DecodingBatch:
    """`sizes` are the lengths of the contexts, with the tokens that are in flight."""

    def __init__(self, requests: Sequence[Request], controls: Controls, padded: int, page: int) -> None:
        self.requests, self.controls, self.padded, self._page = list(requests), controls, padded, page
        self.sizes = np.array([request.size for request in requests])
        self._held = np.array([len(request.pages) * page for request in requests])
        self._ends = np.array([len(request.prompt) + request.limit for request in requests])
        self._alive = np.ones(len(requests), dtype=bool)
        self._fallen: list[int] = []  # rows that died since the last launch
        self._row_of = {id(request): row for row, request in enumerate(requests)}

    def __len__(self) -> int:
        return len(self.requests)

    @property
    def reach(self) -> int:
        """One more than the largest position that the next step reads."""
        return int(self.sizes.max())

    @property
    def dead(self) -> int:
        """How many rows have no request any more."""
        return len(self) - int(self._alive.sum())

    def row(self, request: Request) -> int | None:
        """The request's row, if it is here and alive."""
        row = self._row_of.get(id(request))
        return row if row is not None and self._alive[row] else None

    def kill(self, rows: Sequence[int]) -> None:
        """These rows have no request any more."""
        self._alive[list(rows)] = False
        self._fallen += rows

    def take_fallen(self) -> list[int]:
        """Rows that died since this was asked last: the device learns of all of them at once."""
        fallen, self._fallen = self._fallen, []
        return fallen

    def through(self) -> list[int]:
        """Rows whose last token is in flight: they read nothing more."""
        return np.flatnonzero(self._alive & (self.sizes >= self._ends)).tolist()

    def short(self) -> list[int]:
        """Rows that have no page for what they read next."""
        return np.flatnonzero(self._alive & (self.sizes > self._held) & (self.sizes < self._ends)).tolist()

    def grown(self, row: int) -> None:
        """The row got another page."""
        self._held[row] += self._page

    def advance(self) -> list[int]:
        """A step has been launched. How many tokens of each context have been read with it."""
        read = self.sizes.tolist()
        self.sizes += 1
        return read

    # ---- where a row may get several tokens at a time (speculate/)

    def spare(self, row: int) -> int:
        """How many drafts the row has pages for, besides its last token."""
        return int(self._held[row] - self.sizes[row])

    def move(self, counts: Sequence[int]) -> None:
        """The rows have got so many tokens."""
        self.sizes += np.array(counts)
