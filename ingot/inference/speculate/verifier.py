"""The verification pass: last tokens and drafts in, states out. On a GPU it is a CUDA graph, like a decoding step.

A graph has one shape, so there every row has the largest number of tokens, and those that it has no drafts for are padding.
Models with recurrent states run without: they read in chunks, in other kernels than those of a single step.

Shapes: B rows, T tokens of a row, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ingot.inference.decoder import Decoder


class Verifier:
    """Runs the decoder's model over at most `length` tokens of its leading rows."""

    def __init__(self, decoder: Decoder, length: int, *, graphs: bool) -> None:
        self._decoder, self._length = decoder, length
        self._uses_graphs = graphs and decoder.uses_graphs
        rows = decoder.rows.tokens_B
        self._tokens_BT, self._lengths_B = rows.new_zeros(len(rows), length), torch.ones_like(rows)
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}

    def prepare(self, size: int) -> None:
        """Make sure that there is a graph for this many rows."""
        if self._uses_graphs and size not in self._graphs:
            run = partial(self._run, size, self._length, self._decoder.cache_shape.length)
            with self._decoder.rows.set_aside(size):
                self._graphs[size] = self._decoder.capture(run)

    def load(self, last: Sequence[int], drafts: Sequence[Sequence[int]]) -> Tensor:
        """The next pass reads these tokens [B, T]."""
        count = len(drafts)
        length = self._length if self._uses_graphs else 1 + max(map(len, drafts))
        tokens: NDArray[np.int64] = np.zeros((count, length + 1), dtype=np.int64)
        for row, draft in enumerate(drafts):
            tokens[row, : 2 + len(draft)] = 1 + len(draft), last[row], *draft
        sent_BT = torch.from_numpy(tokens).to(self._tokens_BT.device)
        self._lengths_B[:count], self._tokens_BT[:count, :length] = sent_BT[:, 0], sent_BT[:, 1:]
        return sent_BT[:, 1:]

    def states(self, size: int, length: int, reach: int) -> Tensor:
        """States [B, T, D] of what was loaded, of the first `size` rows. Valid until the next pass."""
        if not self._uses_graphs:
            return self._run(size, length, reach)
        graph, states_BTD = self._graphs[size]
        graph.replay()
        return states_BTD

    def positions(self, size: int, length: int) -> Tensor:
        """The positions of the tokens [B, T]; padding may run over the end, so its positions are clamped."""
        place_T = torch.arange(length, device=self._tokens_BT.device)
        return (self._decoder.rows.positions_B[:size, None] + place_T).clamp_(max=self._decoder.cache_shape.length - 1)

    def _run(self, size: int, length: int, reach: int) -> Tensor:
        rows = self._decoder.rows
        return self._decoder.model.hidden(
            self._tokens_BT[:size, :length],
            self.positions(size, length),
            caches=self._decoder.caches,
            slots=rows.slots_B[:size],
            pages=rows.pages_BR[:size],
            lengths=self._lengths_B[:size],
            reach=reach,
        )
