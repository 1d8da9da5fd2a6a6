"""The rows of a decoding step as tensors on the device.

They are made once, for the largest batch, and filled when the requests of a batch change; between two such changes a step moves
them on in place, so the host need not know the last tokens (and a CUDA graph finds them at the same addresses).
A row whose request has ended before the batch is made anew is a dead row: it computes into page 0 and a slot of its own, which
belong to no request.

Shapes: B rows, R pages of a row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ingot.inference.request import Request
from ingot.model.mixers.cache import PADDING_PAGE, CacheShape


class DecodingRows:
    """Tensors for `count` rows; `padding_slot` is the slot of rows without a request."""

    def __init__(self, count: int, cache_shape: CacheShape, padding_slot: int, device: torch.device) -> None:
        self.padding_slot, self._device = padding_slot, device
        self._pins = device.type == "cuda"
        self.tokens_B = torch.zeros(count, dtype=torch.int64, device=device)
        self.positions_B = torch.zeros(count, dtype=torch.int64, device=device)
        self.steps_B = torch.zeros(count, dtype=torch.int64, device=device)
        self.slots_B = torch.full((count,), padding_slot, dtype=torch.int64, device=device)
        self.pages_BR = torch.full((count, cache_shape.table_width), PADDING_PAGE, dtype=torch.int32, device=device)

    def clear(self, count: int) -> None:
        """Make the first rows dead."""
        for tensor, value in (
            (self.tokens_B, 0),
            (self.positions_B, 0),
            (self.steps_B, 0),
            (self.slots_B, self.padding_slot),
        ):
            tensor[:count] = value
        self.pages_BR[:count] = PADDING_PAGE

    def load(self, requests: Sequence[Request], padded: int) -> None:
        """The first rows are these requests, about to read their last tokens; the rest up to `padded` are dead."""
        numbers = np.zeros((4, padded), dtype=np.int64)
        numbers[3] = self.padding_slot
        table = np.full((padded, self.pages_BR.shape[1]), PADDING_PAGE, dtype=np.int32)
        for row, request in enumerate(requests):
            assert request.slot is not None
            numbers[:, row] = request.last, request.size - 1, len(request.tokens), request.slot
            table[row, : len(request.pages)] = request.pages
        columns = max((len(request.pages) for request in requests), default=0)
        # dead rows must point to no request's memory
        columns = self.pages_BR.shape[1] if padded != len(requests) else columns
        values = self._sent(numbers)
        for target, value in zip((self.tokens_B, self.positions_B, self.steps_B, self.slots_B), values, strict=True):
            target[:padded] = value
        self.pages_BR[:padded, :columns] = self._sent(np.ascontiguousarray(table[:, :columns]))

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
        count = len(ids_B)
        self.tokens_B[:count] = ids_B
        self.positions_B[:count] += 1
        self.steps_B[:count] += 1

    def move(self, last: Sequence[int], counts: Sequence[int]) -> None:
        """Every row got several tokens, of which these are the last."""
        last_B, counts_B = self._sent(np.array((last, counts), dtype=np.int64))
        self.tokens_B[: len(last)] = last_B
        self.positions_B[: len(last)] += counts_B
        self.steps_B[: len(last)] += counts_B

    def _sent(self, values: np.ndarray) -> Tensor:
        """On the device, without waiting for it."""
        tensor = torch.from_numpy(values)
        return tensor.pin_memory().to(self._device, non_blocking=True) if self._pins else tensor
