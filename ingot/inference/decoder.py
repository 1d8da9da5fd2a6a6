"""Runs one decoding step of the model: rows in, logits out. On a GPU it is a captured CUDA graph, one for each batch size.

A step of a small model is hundreds of kernels of a few microseconds each; starting them one by one takes far longer than running
them. A graph starts all of them at once. Its sizes are padded (SIZES), so there are few graphs; they share their memory, because
only one of them runs at a time.

Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor

from ingot.inference.rows import DecodingRows
from ingot.kernels.capture import capturing
from ingot.model.block import Block
from ingot.model.feed_forward.mixture import MixtureOfExperts
from ingot.model.mixers.cache import Cache, CacheShape
from ingot.model.transformer import Transformer

SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)  # then in steps of 128


class Decoder:
    """Runs the model over the leading rows."""

    def __init__(
        self,
        model: Transformer,
        caches: Sequence[Cache | None],
        rows: DecodingRows,
        cache_shape: CacheShape,
        *,
        graphs: bool,
    ) -> None:
        self.model, self.caches, self.rows, self.cache_shape = model, caches, rows, cache_shape
        self.uses_graphs = graphs and all(_can_be_captured(block) for block in model.blocks)
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, Tensor]] = {}
        self._pool = torch.cuda.graph_pool_handle() if self.uses_graphs else None

    def padded(self, count: int) -> int:
        """How many rows a step of `count` requests has."""
        if not self.uses_graphs:
            return count
        size = next((size for size in SIZES if size >= count), -(-count // 128) * 128)
        return min(size, len(self.rows.tokens_B))

    def prepare(self, size: int) -> None:
        """Make sure that there is a graph for this many rows."""
        if self.uses_graphs and size not in self._graphs:
            with self.rows.set_aside(size):
                self._graphs[size] = self.capture(partial(self._run, size, self.cache_shape.length))

    def logits(self, size: int, reach: int) -> Tensor:
        """Logits [B, V] of the first `size` rows; every position is below `reach`. Valid until the next call."""
        if not self.uses_graphs:
            return self._run(size, reach)
        graph, logits_BV = self._graphs[size]
        graph.replay()
        return logits_BV

    def _run(self, size: int, reach: int) -> Tensor:
        rows = self.rows
        with _products_of_few_rows(self.model.embedding.weight):
            states_B1D = self.model.hidden(
                rows.tokens_B[:size, None],
                rows.positions_B[:size, None],
                caches=self.caches,
                slots=rows.slots_B[:size],
                pages=rows.pages_BR[:size],
                reach=reach,
            )
            return self.model.head(states_B1D[:, 0])

    def capture(self, run: Callable[[], Tensor]) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        """A graph of what `run` launches, and where its result will be."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):  # kernels are compiled and libraries make their handles at the first calls
                run()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with capturing(graph, self._pool):
            result = run()
        return graph, result


@contextmanager
def _products_of_few_rows(weight: Tensor) -> Iterator[None]:
    """A context for products of few rows with weights like this one.

    oneDNN on ARM packs a float32 weight anew in every product: 0.4 ms for 128 × 256, of which 16 rows take 0.06. OpenBLAS takes
    the weight as it lies, and is not slower for wider weights and more rows. The switch is for the whole process; torch's own
    context for it also sets options of other devices, with a warning.
    """
    if weight.device.type != "cpu" or weight.dtype != torch.float32 or platform.machine() != "aarch64":
        yield
        return
    keep = (None, None, None)  # of everything else
    before, *_ = torch.backends.mkldnn.set_flags(False, *keep)
    try:
        yield
    finally:
        torch.backends.mkldnn.set_flags(before, *keep)


def _can_be_captured(block: object) -> bool:
    """Whether the block's step always launches the same kernels, whatever the data."""
    assert isinstance(block, Block)
    feed_forward = block.feed_forward
    experts = feed_forward.experts if isinstance(feed_forward, MixtureOfExperts) else None
    return (block.mixer is None or block.mixer.capturable) and (experts is None or experts.capturable)
