"""The engine's cache slots and what they hold: one sequence's past each, also after it has ended.

A slot remembers the tokens that its caches stand for. A new request that begins with the same tokens copies them
instead of computing them again: the samples of one prompt, or the next turn of a conversation whose last turn is still
there. Keys and values may be copied up to any token; a recurrent state stands for all tokens that were read and for no
fewer, so it is of use only to a request that begins with all of them. Everything in the slots is of one version of the
weights, so `forget` is called whenever the weights change.

Active requests are kept in the leading slots, so that a step reads the cache as a view. Gathering rows instead would
copy every active key and value at every step, which on a CPU costs as much as the attention itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ingot.model.transformer import Transformer

NOTHING = -1  # no token


class Slots:
    """`count` slots of `length` tokens."""

    def __init__(self, model: Transformer, count: int, length: int) -> None:
        self.caches = model.make_caches(count, length)
        self.leading = [None if cache is None else cache.leading() for cache in self.caches]
        self._cuttable = all(cache is None or cache.cuttable for cache in self.caches)
        self._device = model.embedding.weight.device
        self._held_SL = np.full((count, length), NOTHING, dtype=np.int64)

    def hold(self, slot: int, tokens: Sequence[int]) -> None:
        """Remember that the slot has the keys and values of exactly these tokens."""
        self._held_SL[slot] = NOTHING
        self._held_SL[slot, : len(tokens)] = tokens

    def grow(self, tokens: Sequence[int], positions: Sequence[int]) -> None:
        """The leading slots have read one more token each; a recurrent state has moved on with it."""
        self._held_SL[np.arange(len(tokens)), positions] = tokens

    def forget(self) -> None:
        """Nothing that lies in a slot may be used any more."""
        self._held_SL.fill(NOTHING)

    def longest_match(self, tokens: Sequence[int]) -> tuple[int, int]:
        """The slot that holds the longest beginning of `tokens`, and the length of that."""
        differs = self._held_SL[:, : len(tokens)] != np.asarray(tokens)
        lengths = np.where(differs.any(axis=1), differs.argmax(axis=1), len(tokens))
        if not self._cuttable:  # a recurrent state is of use only if it stands at the end of what matches
            held = (self._held_SL != NOTHING).sum(axis=1)
            lengths = np.where(lengths == held, lengths, 0)
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
            if cache is not None:
                cache.copy(origin, place, length)
