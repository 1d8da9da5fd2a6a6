"""The rows of a decoding step as tensors on the device.

They are made once, for the largest batch, and filled when the requests of a batch change; between two such changes a step moves
them on in place, so the host need not know the last tokens (and a CUDA graph finds them at the same addresses). When requests
change, the rows of those that stay are moved on the device, too: their last tokens may still be on their way to the host.
A row whose request has ended before the batch is made anew is a dead row: it computes into page 0 and a slot of its own, which
belong to no request.

Shapes: B rows, R pages of a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ingot.inference.request import Request
from ingot.model.mixers.cache import PADDING_PAGE, CacheShape

NEW = -1  # in place of a row that is moved
ALIGNMENT = 16  # numbers, so that each kind of them begins where a kernel may read many at once


class DecodingRows:
    """Tensors for `count` rows; `padding_slot` is the slot of rows without a request."""

    def __init__(self, count: int, cache_shape: CacheShape, padding_slot: int, device: torch.device) -> None:
        self.padding_slot, self._device = padding_slot, device
        self._pins = device.type == "cuda"
        width = -(-count // ALIGNMENT) * ALIGNMENT
        self._numbers_4B = torch.zeros(4, width, dtype=torch.int64, device=device)
        self.tokens_B, self.positions_B, self.steps_B, self.slots_B = self._numbers_4B[:, :count].unbind()
        self.pages_BR = torch.zeros((count, cache_shape.table_width), dtype=torch.int32, device=device)
        self._clear(count)

    @contextmanager
    def set_aside(self, count: int) -> Iterator[None]:
        """The first rows are dead while the body runs, and what they were after it."""
        numbers_4B, pages_BR = self._numbers_4B[:, :count].clone(), self.pages_BR[:count].clone()
        self._clear(count)
        try:
            yield
        finally:
            self._numbers_4B[:, :count], self.pages_BR[:count] = numbers_4B, pages_BR

    def _clear(self, count: int) -> None:
        self._numbers_4B[:, :count] = 0
        self.slots_B[:count] = self.padding_slot
        self.pages_BR[:count] = PADDING_PAGE

    def load(self, requests: Sequence[Request], sources: NDArray[Any], padded: int) -> None:
        """The first rows are these requests: each goes on from the row that `sources` names, or, if NEW, is about to read its
        last token. The rest up to `padded` are dead."""
        numbers = np.zeros((5, padded), dtype=np.int64)
        numbers[3], numbers[4] = self.padding_slot, NEW
        numbers[4, : len(requests)] = sources
        new = [(row, requests[row]) for row in np.flatnonzero(sources == NEW).tolist()]
        table = np.full((padded, max((len(request.pages) for _, request in new), default=1)), PADDING_PAGE, np.int32)
        for row, request in new:
            assert request.slot is not None
            numbers[:4, row] = request.last, request.size - 1, len(request.tokens), request.slot
            table[row, : len(request.pages)] = request.pages
        sent_5B, sent_BR = self._sent(numbers), self._sent(table)
        new_B, before_B = sent_5B[4] == NEW, sent_5B[4].clamp(min=0)
        self._numbers_4B[:, :padded] = torch.where(new_B, sent_5B[:4], self._numbers_4B[:, before_B])
        # dead rows must point to no request's memory
        pages_BR = self.pages_BR[before_B].masked_fill_(new_B[:, None], PADDING_PAGE)
        columns = table.shape[1]
        pages_BR[:, :columns] = torch.where(new_B[:, None], sent_BR, pages_BR[:, :columns])
        self.pages_BR[:padded] = pages_BR

    def grow(self, added: Sequence[tuple[int, int, int]]) -> None:
        """New pages of rows: (row, which of its pages, page)."""
        rows, indices, pages = self._sent(np.array(added, dtype=np.int64).T.copy())
        self.pages_BR[rows, indices] = pages.int()

    def kill(self, rows: Sequence[int]) -> None:
        """These rows' requests have ended."""
        dead = self._sent(np.array(rows, dtype=np.int64))
        self.pages_BR.index_fill_(0, dead, PADDING_PAGE)
        self.slots_B.index_fill_(0, dead, self.padding_slot)

    def advance(self, ids_B: Tensor) -> None:
        """Every row got one token."""
        self.tokens_B[: len(ids_B)] = ids_B
        self._numbers_4B[1:3, : len(ids_B)] += 1  # positions and steps

    def move(self, last: Sequence[int], counts: Sequence[int]) -> None:
        """Every row got several tokens, of which these are the last."""
        last_B, counts_B = self._sent(np.array((last, counts), dtype=np.int64))
        self.tokens_B[: len(last)] = last_B
        self._numbers_4B[1:3, : len(last)] += counts_B

    def _sent(self, values: NDArray[Any]) -> Tensor:
        """On the device, without waiting for it."""
        tensor = torch.from_numpy(values)
        return tensor.pin_memory().to(self._device, non_blocking=True) if self._pins else tensor
