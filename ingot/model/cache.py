"""Keys and values of the past, for sampling: a fixed number of slots, one sequence each.

A slot holds its sequence's keys at index = position. Writing is by (slot, position), so prefill (many tokens) and decode
(one token), rows of different lengths, and padding at the end of a row are one operation: what lies beyond a sequence's
end is never visible (a query sees keys at indices up to its own position) and is overwritten when the sequence grows.
"""

from __future__ import annotations

import torch
from torch import Tensor


class KeyValueCache:
    """The cache of one attention layer: keys and values [slots, key/value heads, length, head width]."""

    def __init__(
        self, slots: int, heads: int, length: int, width: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.keys = torch.zeros(slots, heads, length, width, dtype=dtype, device=device)
        self.values = torch.zeros_like(self.keys)

    def write(self, slots_B: Tensor, positions_BT: Tensor, key_BKTD: Tensor, value_BKTD: Tensor) -> None:
        """Store new keys and values at their slots and positions."""
        rows = slots_B[:, None]
        self.keys[rows, :, positions_BT] = key_BKTD.transpose(1, 2).to(self.keys.dtype)
        self.values[rows, :, positions_BT] = value_BKTD.transpose(1, 2).to(self.values.dtype)

    def read(self, slots_B: Tensor, reach: int) -> tuple[Tensor, Tensor]:
        """Keys and values of the given slots at positions below `reach`."""
        return self.keys[:, :, :reach][slots_B], self.values[:, :, :reach][slots_B]

    def copy(self, source: int, targets: Tensor, length: int) -> None:
        """Give other slots the first `length` positions of `source`: samples of one prompt share its prefill."""
        self.keys[targets, :, :length] = self.keys[source, :, :length]
        self.values[targets, :, :length] = self.values[source, :, :length]
