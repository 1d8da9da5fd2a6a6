"""Context parallelism: the tokens of each row are divided over ranks (arXiv 2310.01889, 2407.21783).

A row of T tokens is cut into 2·N equal pieces; rank r of N holds the pieces r and 2N − 1 − r, one after the other:

    N = 2     pieces  0 1 2 3        rank 0: 0 3        rank 1: 1 2

A causal query costs as much as there are tokens before it, so an early and a late piece together cost the same on every rank.
Every rank reads whole rows, so it knows the tokens, positions and documents of all ranks. Only activations are exchanged:

    own       whole rows -> this rank's tokens
    gather    this rank's tokens -> whole rows in their true order; backward, the gradients of all ranks are summed and each rank
              gets those of its tokens (all-gather, reduce-scatter)

Shapes: N ranks, T tokens of a row along the axis that is cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, distributed

from ingot.workspace.errors import RecipeError

# torch 2.13 has new names for them
all_gather = getattr(distributed, "all_gather_single", distributed.all_gather_into_tensor)
reduce_scatter = getattr(distributed, "reduce_scatter_single", distributed.reduce_scatter_tensor)


@dataclass(frozen=True)
class ContextParallel:
    """The ranks that share every row, and which of them this one is."""

    group: distributed.ProcessGroup
    rank: int
    size: int
    ring: bool = False  # attention passes keys and values around (mixers/attend_ring.py) instead of gathering them

    def own(self, x: Tensor, axis: int = 1) -> Tensor:
        """This rank's tokens of whole rows."""
        if x.shape[axis] % (2 * self.size):
            raise RecipeError(
                f"rows of {x.shape[axis]} tokens cannot be cut into 2 · {self.size} equal pieces",
                place="mesh.context",
                fix=f"choose a sequence_length that is a multiple of {2 * self.size}",
            )
        pieces = x.chunk(2 * self.size, axis)
        return torch.cat((pieces[self.rank], pieces[-1 - self.rank]), axis)

    def gather(self, x: Tensor, axis: int = 1) -> Tensor:
        """Whole rows from the tokens of all ranks."""
        return _GatherTokens.apply(x, axis, self)  # type: ignore[no-untyped-call]

    def sum(self, x: Tensor) -> Tensor:
        """The sum over the ranks, in place and without gradient."""
        distributed.all_reduce(x, group=self.group)
        return x

    def pieces(self, rank: int, length: int) -> tuple[range, range]:
        """The indices of a rank's tokens in rows of `length`."""
        size = length // (2 * self.size)
        early, late = rank * size, (2 * self.size - 1 - rank) * size
        return range(early, early + size), range(late, late + size)

    def shift(self, *tensors: Tensor) -> tuple[list[Tensor], list[distributed.Work]]:
        """Send tensors to the next rank. Returns what the previous rank sends, and the handles to wait for before using it."""
        after, before = (distributed.get_global_rank(self.group, (self.rank + step) % self.size) for step in (1, -1))
        sent = [tensor.contiguous() for tensor in tensors]
        received = [torch.empty_like(tensor) for tensor in sent]
        sends = [distributed.P2POp(distributed.isend, tensor, after, self.group) for tensor in sent]
        receives = [distributed.P2POp(distributed.irecv, tensor, before, self.group) for tensor in received]
        return received, distributed.batch_isend_irecv([*sends, *receives])

    def passing(self, *tensors: Tensor) -> Iterator[tuple[int, list[Tensor]]]:
        """Every rank's tensors with the rank's number, this rank's first; the next are transferred while the caller computes."""
        here = list(tensors)
        for step in range(self.size):
            last = step + 1 == self.size
            following, waiting = ([], []) if last else self.shift(*here)
            yield (self.rank - step) % self.size, here
            for work in waiting:
                work.wait()
            here = following

    def in_order(self, parts: Tensor, axis: int) -> Tensor:
        """Whole rows from the ranks' tokens, stacked along a new first axis."""
        early, late = zip(*(part.chunk(2, axis) for part in parts.unbind()), strict=True)
        return torch.cat((*early, *reversed(late)), axis)

    def by_rank(self, x: Tensor, axis: int) -> Tensor:
        """The inverse of `in_order`: every rank's tokens of whole rows, stacked along a new first axis."""
        pieces = x.chunk(2 * self.size, axis)
        return torch.stack([torch.cat((pieces[rank], pieces[-1 - rank]), axis) for rank in range(self.size)])


class _GatherTokens(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, axis: int, context_parallel: ContextParallel) -> Tensor:
        ctx.axis, ctx.context_parallel = axis, context_parallel
        parts = x.new_empty(context_parallel.size, *x.shape)
        all_gather(parts.view(-1), x.reshape(-1), group=context_parallel.group)
        return context_parallel.in_order(parts, axis)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        parts = ctx.context_parallel.by_rank(gradient, ctx.axis)
        own = parts.new_empty(parts.shape[1:])
        reduce_scatter(own.view(-1), parts.view(-1), group=ctx.context_parallel.group)
        return own, None, None
