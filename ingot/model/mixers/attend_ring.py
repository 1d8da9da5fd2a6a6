"""Attention over rows whose tokens are divided over ranks: keys and values go around a ring (Liu et al., arXiv 2310.01889).

Every rank keeps its queries. In step s it has the keys and values of rank r − s, attends to them while the next ones are sent,
and merges: with o and l the output and log-sum-exp so far, and those of the new keys o′ and l′,

    l ← log(e^l + e^l′),      o ← e^(l_old − l) · o + e^(l′ − l) · o′

so that no rank ever holds more than two ranks' keys, whatever the length of the row. Backward, keys and values go around again
with the sums of their gradients: each rank adds what its queries give, and after a full round the sums are back on their own
rank. The products are those of attend_blocks.py; a rank's tokens are two contiguous pieces of the row (context_parallel.py),
and a block of queries looks only at the part of a piece that its mask leaves.

Shapes: B rows, H query heads, K key heads, G = H/K, T tokens of a rank, W key width, V value width.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ingot.kernels.attention.attention_options import AttentionOptions
from ingot.model.context import Context
from ingot.model.context_parallel import ContextParallel
from ingot.model.mixers.attend_blocks import BlockWork, block_work, by_head, product, sink_gradients
from ingot.model.mixers.mask import Mask


def attend_ring(
    query_BHTW: Tensor,
    key_BKTW: Tensor,
    value_BKTV: Tensor,
    mask: Mask,
    context: Context,
    options: AttentionOptions,
    *,
    peaks: list[Tensor] | None = None,
) -> Tensor:
    """Causal attention [B, H, T, V] of this rank's queries to the keys of all ranks; padding counts as a document."""
    assert context.context_parallel is not None
    length = context.whole.positions_BT.shape[1]
    ring = Ring(block_work(mask, context, options, peaks), context.context_parallel, length)
    mixed: Tensor = _Ring.apply(query_BHTW, key_BKTW, value_BKTV, options.sinks_H, ring)  # type: ignore[no-untyped-call]
    return mixed


@dataclass(frozen=True)
class Ring:
    """The blocks of a pass, the ranks, and the length of whole rows."""

    work: BlockWork
    context_parallel: ContextParallel
    length: int

    def blocks(self, rank: int) -> Iterator[tuple[slice, slice, Tensor]]:
        """Queries, a rank's keys, and which of them each query sees, for all blocks that see any."""
        tokens = 0
        for piece in self.context_parallel.pieces(rank, self.length):
            for queries, keys, visible in self.work.blocks(piece.start, piece.stop):
                yield queries, slice(tokens + keys.start, tokens + keys.stop), visible
            tokens += len(piece)


class _Ring(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query_BHTW: Tensor, key_BKTW: Tensor, value_BKTV: Tensor, sinks_H: Tensor | None, ring: Ring
    ) -> Tensor:
        work, query = ring.work, query_BHTW.unflatten(1, (key_BKTW.shape[1], -1))
        exact = torch.promote_types(query.dtype, torch.float32)
        mixed = query.new_zeros(*query.shape[:-1], value_BKTV.shape[-1], dtype=exact)
        lse = query.new_full((*query.shape[:-1], 1), -torch.inf, dtype=exact)
        peaks = lse.squeeze(-1).clone()
        for rank, (key, value) in ring.context_parallel.passing(key_BKTW, value_BKTV):
            for queries, keys, visible in ring.blocks(rank):
                scores = work.scores(query[:, :, :, queries], key[:, :, keys]).masked_fill_(~visible, -torch.inf)
                if work.peaks is not None:
                    peaks[..., queries] = torch.maximum(peaks[..., queries], scores.amax(dim=-1))
                scores = work.capped(scores).masked_fill_(~visible, -torch.inf)
                before = lse[:, :, :, queries]
                after = torch.logaddexp(before, scores.logsumexp(dim=-1, keepdim=True))
                safe = after.masked_fill(after == -torch.inf, 0)  # a query that has seen no key yet
                part = product(scores.sub_(safe).exp_().to(value.dtype), value[:, :, keys])
                mixed[:, :, :, queries] = mixed[:, :, :, queries] * (before - safe).exp() + part
                lse[:, :, :, queries] = after
        if sinks_H is not None:
            total = torch.logaddexp(lse, by_head(sinks_H, lse))
            mixed, lse = mixed * (lse - total).exp(), total
        output = mixed.to(value_BKTV.dtype).flatten(1, 2)
        if work.peaks is not None:
            work.peaks.append(peaks.flatten(1, 2))
        ctx.ring = ring
        ctx.save_for_backward(query_BHTW, key_BKTW, value_BKTV, sinks_H, output, lse)
        return output

    @staticmethod
    def backward(ctx: Any, gradient_BHTV: Tensor) -> tuple[Tensor | None, ...]:
        query_BHTW, key_BKTW, value_BKTV, sinks_H, output_BHTV, lse = ctx.saved_tensors
        ring: Ring = ctx.ring
        grouped = (1, (key_BKTW.shape[1], -1))
        query, output, gradient = (x.unflatten(*grouped) for x in (query_BHTW, output_BHTV, gradient_BHTV))
        along = (gradient.to(lse.dtype) * output.to(lse.dtype)).sum(dim=-1, keepdim=True)
        d_query = torch.zeros_like(query, dtype=lse.dtype)
        sums = [torch.zeros_like(x, dtype=lse.dtype) for x in (key_BKTW, value_BKTV)]
        for rank, (key, value) in ring.context_parallel.passing(key_BKTW, value_BKTV):
            for queries, keys, visible in ring.blocks(rank):
                part, up, dot, total = (x[:, :, :, queries] for x in (query, gradient, along, lse))
                found = ring.work.gradients(part, key[:, :, keys], value[:, :, keys], up, dot, total, visible)
                d_query[:, :, :, queries] += found[0]
                sums[0][:, :, keys] += found[1]
                sums[1][:, :, keys] += found[2]
            # the sums move on with the keys that they belong to, and are back on their own rank in the end
            sums, waiting = ring.context_parallel.shift(*sums)
            for work in waiting:
                work.wait()
        d_query = d_query.flatten(1, 2).to(query.dtype)
        d_sinks = sink_gradients(sinks_H, lse, along)
        return d_query, sums[0].to(key_BKTW.dtype), sums[1].to(value_BKTV.dtype), d_sinks, None
