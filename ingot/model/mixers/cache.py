"""The past of the sequences being sampled: a fixed number of slots, one sequence each. Every mixer brings its own kind.

* `TokenCache` keeps something for every token (keys and values, a latent, indexer keys) at index = position. Writing is by
  (slot, position), so prefill (many tokens) and decode (one token), rows of different lengths, and padding at the end of a
  row are one operation: what lies beyond a sequence's end is never visible (a query sees indices up to its own position)
  and is overwritten when the sequence grows. Any beginning of a slot is itself a valid cache (`cuttable`).
* `StateCache` keeps a state that stands for the whole past (recurrent state, the convolution's last inputs). It cannot be
  cut: it is the state after exactly the tokens that were read. A row that starts at position 0 starts from zeros.
* `JointCache` is both, for mixers made of two.

`leading()` is the same memory, but row b of a batch is always slot b, so that reading copies nothing (inference/slots.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import torch
from torch import Tensor


class Cache(ABC):
    """The cache of one layer."""

    cuttable: bool  # whether the first n tokens of a slot are a valid cache by themselves

    @abstractmethod
    def copy(self, sources: Tensor, targets: Tensor, length: int) -> None:
        """Copy the first `length` tokens (or the whole state) from slots to slots, all at once: a slot may be both."""

    @abstractmethod
    def leading(self) -> Cache:
        """The same memory for batches whose row b is slot b."""


class TokenCache(Cache):
    """Named streams [slots, heads, length, width], one entry per token."""

    cuttable = True

    def __init__(
        self,
        streams: Mapping[str, tuple[int, int]],
        slots: int,
        length: int,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.streams = {
            name: torch.zeros(slots, heads, length, width, dtype=dtype, device=device)
            for name, (heads, width) in streams.items()
        }
        self._leading = False

    def write(self, slots_B: Tensor, positions_BT: Tensor, **values_BHTW: Tensor) -> None:
        """Store new tokens' entries of the named streams at their slots and positions."""
        for name, value in values_BHTW.items():
            stream = self.streams[name]
            stream[slots_B[:, None], :, positions_BT] = value.transpose(1, 2).to(stream.dtype)

    def read(self, name: str, slots_B: Tensor, reach: int) -> Tensor:
        """The entries [B, heads, reach, width] of the given slots at positions below `reach`."""
        stream = self.streams[name]
        return stream[: len(slots_B), :, :reach] if self._leading else stream[:, :, :reach][slots_B]

    def copy(self, sources: Tensor, targets: Tensor, length: int) -> None:
        for stream in self.streams.values():
            stream[targets, :, :length] = stream[sources, :, :length]

    def leading(self) -> TokenCache:
        view = TokenCache.__new__(TokenCache)
        view.streams, view._leading = self.streams, True
        return view


class StateCache(Cache):
    """Named states [slots, …], each the whole past of its slot."""

    cuttable = False

    def __init__(
        self,
        states: Mapping[str, tuple[int, ...]],
        slots: int,
        dtypes: Mapping[str, torch.dtype],
        device: torch.device,
    ) -> None:
        self.states = {
            name: torch.zeros(slots, *shape, dtype=dtypes[name], device=device) for name, shape in states.items()
        }

    def read(self, name: str, slots_B: Tensor, positions_BT: Tensor) -> Tensor:
        """The slots' states; zeros for rows that start at position 0."""
        state = self.states[name][slots_B]
        fresh = (positions_BT[:, 0] == 0).view(-1, *[1] * (state.dim() - 1))
        return state.masked_fill(fresh, 0)

    def write(self, slots_B: Tensor, **states: Tensor) -> None:
        """The states after this pass's tokens."""
        for name, state in states.items():
            self.states[name][slots_B] = state.to(self.states[name].dtype)

    def copy(self, sources: Tensor, targets: Tensor, length: int) -> None:
        for state in self.states.values():
            state[targets] = state[sources]

    def leading(self) -> StateCache:
        return self


class JointCache(Cache):
    """Several caches that move together."""

    def __init__(self, **parts: Cache) -> None:
        self.parts = parts
        self.cuttable = all(part.cuttable for part in parts.values())

    def copy(self, sources: Tensor, targets: Tensor, length: int) -> None:
        for part in self.parts.values():
            part.copy(sources, targets, length)

    def leading(self) -> JointCache:
        return JointCache(**{name: part.leading() for name, part in self.parts.items()})
