"""Prefill as captured CUDA graphs, where the prompts of a pass are short.

Starting the kernels of a pass one by one takes the host longer than the device needs for a few hundred tokens, and RL reads short
prompts all the time: each group of samples begins with one. As in prefill.py the chunks are cut into rows of one length that see
each other; here it is always ROW tokens, and a graph takes one of SIZES rows, of which those left over are dead.

Shapes: B rows, T = ROW tokens of a row, R pages of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from ingot.inference.memory import Memory
from ingot.inference.modify import to_device
from ingot.inference.prefill import PromptChunk, cut_rows, row_arrays, rows_split
from ingot.kernels.attention.attend_paged import DTYPES
from ingot.kernels.launch import has_triton
from ingot.model.mixers.cache import PADDING_PAGE
from ingot.model.transformer import Transformer

ROW = 16
SIZES = (8, 16, 32, 64, 128)


def graphs_pay(model: Transformer) -> bool:
    """Whether rows see each other, and attention is the kernel's: it reads up to a row's own position. A graph has room for the
    longest row, and the definition would read all of that."""
    return rows_split(model) and has_triton() and model.embedding.weight.dtype in DTYPES


class Replayed(Protocol):
    """A captured graph."""

    def replay(self) -> None:
        """Launch all its kernels."""


class Inputs(NamedTuple):
    """Where a graph reads its rows: whole numbers in one tensor, and views of it; and the pages of each row."""

    numbers_N: Tensor
    tokens_BT: Tensor
    positions_BT: Tensor
    slots_B: Tensor
    lengths_B: Tensor
    pages_BR: Tensor


class PromptGraphs:
    """Reads what fits; `capture` makes a graph of what a function launches (decoder.py)."""

    def __init__(
        self,
        model: Transformer,
        memory: Memory,
        capture: Callable[[Callable[[], Tensor]], tuple[Replayed, Tensor]],
    ) -> None:
        self.model, self.memory, self.capture = model, memory, capture
        self._graphs: dict[int, tuple[Inputs, Replayed]] = {}

    def read(self, chunks: Sequence[PromptChunk]) -> bool:
        """Compute what the caches keep of these tokens; false if there are too many rows, or a request asks for scores."""
        rows = cut_rows(chunks, ROW)
        size = next((size for size in SIZES if size >= len(rows)), None)
        if size is None or not rows or any(request.scoring is not None for request, _, _ in rows):
            return False
        if size not in self._graphs:
            inputs = self._inputs(size)
            self._graphs[size] = inputs, self.capture(partial(self._run, inputs))[0]
        inputs, graph = self._graphs[size]
        self._fill(inputs, size, rows)
        graph.replay()
        return True

    def _inputs(self, size: int) -> Inputs:
        """Of dead rows."""
        shape, device = self.memory.cache_shape, self.memory.device
        numbers_N = torch.zeros(size * (2 * ROW + 2), dtype=torch.int64, device=device)
        tokens, positions, slots_B, lengths_B = numbers_N.split((size * ROW, size * ROW, size, size))
        slots_B.fill_(self.memory.padding_slot)
        pages_BR = torch.full((size, shape.table_width), PADDING_PAGE, dtype=torch.int32, device=device)
        return Inputs(numbers_N, tokens.view(size, ROW), positions.view(size, ROW), slots_B, lengths_B, pages_BR)

    def _fill(self, inputs: Inputs, size: int, rows: Sequence[PromptChunk]) -> None:
        """Send the rows to where the graph reads them; the rest of its rows are dead."""
        tokens, positions, slots, lengths, pages = row_arrays(self.memory, rows, ROW, size)
        numbers = np.concatenate((tokens[:, :-1].reshape(-1), positions.reshape(-1), slots, lengths))
        inputs.numbers_N.copy_(to_device(numbers, self.memory.device))
        inputs.pages_BR.copy_(to_device(pages, self.memory.device))

    def _run(self, inputs: Inputs) -> Tensor:
        return self.model.hidden(
            inputs.tokens_BT,
            inputs.positions_BT,
            caches=self.memory.caches,
            slots=inputs.slots_B,
            pages=inputs.pages_BR,
            lengths=inputs.lengths_B,
            reach=self.memory.cache_shape.length,
        )
