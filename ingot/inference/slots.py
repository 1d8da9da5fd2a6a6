"""The engine's cache slots and what they hold: one sequence's keys and values each, also after it has ended.

A slot remembers the tokens whose keys and values lie in it. A new request that begins with the same tokens copies them
instead of computing them again: the samples of one prompt, or the next turn of a conversation whose last turn is still
there. Keys and values are of one version of the weights, so `forget` is called whenever the weights change.

Active requests are kept in the leading slots, so that a step reads the cache as a view. Gathering rows instead would
copy every active key and value at every step, which on a CPU costs as much as the attention itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ingot.model.cache import KeyValueCache
from ingot.model.transformer import Transformer

NOTHING = -1  # no token


class LeadingSlots(KeyValueCache):
    """The same memory as `cache`, where row b of a batch is always slot b: reading copies nothing."""

    def __init__(self, cache: KeyValueCache) -> None:
        self.keys, self.values = cache.keys, cache.values

    def read(self, slots_B: Tensor, reach: int) -> tuple[Tensor, Tensor]:
        """Keys and values of slots 0 … B−1 at positions below `reach`; `slots_B` counts up from 0."""
        rows = len(slots_B)
        return self.keys[:rows, :, :reach], self.values[:rows, :, :reach]


class Slots:
    """`count` slots of `length` tokens."""

    def __init__(self, model: Transformer, count: int, length: int) -> None:
        self.caches = model.make_caches(count, length)
        self.leading = [LeadingSlots(cache) for cache in self.caches]
        self._device = model.embedding.weight.device
        self._held_SL = np.full((count, length), NOTHING, dtype=np.int64)

    def hold(self, slot: int, tokens: Sequence[int]) -> None:
        """Remember that the slot has the keys and values of exactly these tokens."""
        self._held_SL[slot] = NOTHING
        self._held_SL[slot, : len(tokens)] = tokens

    def forget(self) -> None:
        """Nothing that lies in a slot may be used any more."""
        self._held_SL.fill(NOTHING)

    def longest_match(self, tokens: Sequence[int]) -> tuple[int, int]:
        """The slot that holds the longest beginning of `tokens`, and the length of that."""
        differs = self._held_SL[:, : len(tokens)] != np.asarray(tokens)
        lengths = np.where(differs.any(axis=1), differs.argmax(axis=1), len(tokens))
        slot = int(lengths.argmax())
        return slot, int(lengths[slot])

    def copy(self, sources: Sequence[int], targets: Sequence[int], length: int) -> None:
        """Copy the first `length` positions from slots to slots, all at the same time: a slot may be both."""
        if not targets or not length:
            return
        self._held_SL[targets, :length] = self._held_SL[sources, :length]
        self._held_SL[targets, length:] = NOTHING
        origin = torch.tensor(sources, device=self._device)
        place = torch.tensor(targets, device=self._device)
        for cache in self.caches:
            cache.keys[place, :, :length] = cache.keys[origin, :, :length]
            cache.values[place, :, :length] = cache.values[origin, :, :length]
