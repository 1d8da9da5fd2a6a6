"""Attention in plain PyTorch with bounded memory: computes blocks of queries against only the keys they can see.

The keys in sight of the queries a … b−1 are first_a … b−1 (mask.py), so a block costs what its mask leaves. As in
FlashAttention (Dao et al., arXiv 2205.14135) the scores are not kept for the backward pass but computed again from the
log-sum-exp of each query: with p_ij = exp(s_ij − lse_i),

    dv_j = Σ_i p_ij do_i,   ds_ij = p_ij · (do_i·v_j − do_i·o_i),   dq_i = scale · Σ_j ds_ij k_j,   dk_j = scale · Σ_i ds_ij q_i

A sink is one more term of lse with no value: d sink = −Σ_i exp(sink − lse_i) · do_i·o_i. A softcap c multiplies ds by
1 − (s/c)². This is the backend for what fused kernels leave out: softcap and sinks, on any device and in any dtype.

Shapes: B rows, H query heads, K key heads, G = H/K, T tokens, W key width, V value width; of a block: Q queries, S keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ingot.kernels.attention.attention_options import AttentionOptions
from ingot.model.context import Context
from ingot.model.mixers.mask import Mask

OPTIONS = frozenset(("scale", "window", "chunk", "softcap", "sinks_H"))  # that this backend understands
QUERIES = 128  # per block


def attend_blocks(
    query_BHTW: Tensor,
    key_BKTW: Tensor,
    value_BKTV: Tensor,
    mask: Mask,
    context: Context,
    options: AttentionOptions,
    *,
    peaks: list[Tensor] | None = None,
) -> Tensor:
    """Causal attention [B, H, T, V] within documents, window and chunk; padding counts as a document.

    `peaks` gets each query's largest score before the softcap [B, H, T].
    """
    work = block_work(mask, context, options, peaks)
    mixed: Tensor = _Blocks.apply(query_BHTW, key_BKTW, value_BKTV, options.sinks_H, work)  # type: ignore[no-untyped-call]
    return mixed


@torch.no_grad()
def block_peaks(
    query_BHTW: Tensor, key_BKTW: Tensor, mask: Mask, context: Context, options: AttentionOptions
) -> Tensor:
    """Each query's largest score alone [B, H, T]."""
    work = block_work(mask, context, options)
    query = query_BHTW.unflatten(1, (key_BKTW.shape[1], -1))
    found = [
        work.scores(query[:, :, :, queries], key_BKTW[:, :, keys]).masked_fill_(~visible, -torch.inf).amax(dim=-1)
        for queries, keys, visible in work.blocks()
    ]
    return torch.cat(found, dim=3).flatten(1, 2)


def block_work(mask: Mask, context: Context, options: AttentionOptions, peaks: list[Tensor] | None = None) -> BlockWork:
    """The blocks of a pass; which keys each of them sees is asked once for all layers."""
    first_BT, index_T = mask.first(context), context.index_T

    def in_sight() -> list[list[int]]:
        last_N = torch.arange(QUERIES - 1, len(index_T) + QUERIES - 1, QUERIES, device=index_T.device)
        last_N = last_N.clamp(max=len(index_T) - 1)
        return torch.stack((first_BT[:, ::QUERIES].amin(dim=0), index_T[last_N] + 1), dim=1).tolist()

    spans = context.once(("blocks", mask.window, mask.chunk), in_sight)
    return BlockWork(first_BT, index_T, spans, options.scale, options.softcap, peaks)


@dataclass(frozen=True)
class BlockWork:
    """Data for both passes besides the tensors that have gradients."""

    first_BT: Tensor
    index_T: Tensor  # the queries' indices among the keys
    in_sight: list[list[int]]  # the first key that any query of each block sees, and the end of what its last one sees
    scale: float
    softcap: float | None
    peaks: list[Tensor] | None

    def blocks(self, start: int = 0, end: int | None = None) -> Iterator[tuple[slice, slice, Tensor]]:
        """Queries, keys, and which of the keys each query sees [B, 1, 1, Q, S].

        With `start` and `end` there are only these keys of the row: they count from `start`, and blocks that see none are
        left out.
        """
        for block, (low, high) in enumerate(self.in_sight):
            low, high = max(low, start), high if end is None else min(high, end)
            if low >= high:
                continue
            queries = slice(block * QUERIES, (block + 1) * QUERIES)
            key_S = torch.arange(low, high, device=self.first_BT.device)
            visible = (key_S >= self.first_BT[:, queries, None]) & (key_S <= self.index_T[queries, None])
            yield queries, slice(low - start, high - start), visible[:, None, None]

    def scores(self, query_BKGQW: Tensor, key_BKSW: Tensor) -> Tensor:
        """Scaled, in float32 at least: [B, K, G, Q, S]."""
        scores = product(query_BKGQW, key_BKSW.mT)
        return scores.to(torch.promote_types(scores.dtype, torch.float32)) * self.scale

    def capped(self, scores: Tensor) -> Tensor:
        """After the softcap."""
        return scores if self.softcap is None else self.softcap * torch.tanh(scores / self.softcap)

    def gradients(
        self, query: Tensor, key: Tensor, value: Tensor, up: Tensor, along: Tensor, lse: Tensor, visible: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """dq, dk and dv of one block; `up` is do, `along` do·o."""
        scores = self.capped(self.scores(query, key))
        weights = (scores - lse).exp_().masked_fill_(~visible, 0)
        d_value = product(weights.to(up.dtype), up, over_queries=True)
        d_scores = product(up, value.mT).to(lse.dtype)
        d_scores.sub_(along).mul_(weights)
        if self.softcap is not None:
            d_scores.mul_(1 - (scores / self.softcap).square_())
        d_scores = d_scores.mul_(self.scale).to(query.dtype)
        return product(d_scores, key), product(d_scores, query, over_queries=True), d_value


class _Blocks(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query_BHTW: Tensor, key_BKTW: Tensor, value_BKTV: Tensor, sinks_H: Tensor | None, work: BlockWork
    ) -> Tensor:
        key_heads = key_BKTW.shape[1]
        query = query_BHTW.unflatten(1, (key_heads, -1))
        mixed, sums, peaks = [], [], []
        for queries, keys, visible in work.blocks():
            scores = work.scores(query[:, :, :, queries], key_BKTW[:, :, keys])
            if work.peaks is not None:
                peaks.append(scores.masked_fill(~visible, -torch.inf).amax(dim=-1))
            scores = work.capped(scores)
            lse = scores.masked_fill_(~visible, -torch.inf).logsumexp(dim=-1, keepdim=True)
            if sinks_H is not None:
                lse = torch.logaddexp(lse, by_head(sinks_H, lse))
            weights = scores.sub_(lse).exp_()
            mixed.append(product(weights.to(value_BKTV.dtype), value_BKTV[:, :, keys]))
            sums.append(lse)
        output = torch.cat(mixed, dim=3).flatten(1, 2)
        if work.peaks is not None:
            work.peaks.append(torch.cat(peaks, dim=3).flatten(1, 2))
        ctx.work = work
        ctx.save_for_backward(query_BHTW, key_BKTW, value_BKTV, sinks_H, output, torch.cat(sums, dim=3))
        return output

    @staticmethod
    def backward(ctx: Any, gradient_BHTV: Tensor) -> tuple[Tensor | None, ...]:
        query_BHTW, key_BKTW, value_BKTV, sinks_H, output_BHTV, lse = ctx.saved_tensors
        work: BlockWork = ctx.work
        grouped = (1, (key_BKTW.shape[1], -1))
        query, output, gradient = (x.unflatten(*grouped) for x in (query_BHTW, output_BHTV, gradient_BHTV))
        along = (gradient.to(lse.dtype) * output.to(lse.dtype)).sum(dim=-1, keepdim=True)  # do·o [B, K, G, T, 1]
        d_query = []
        d_key, d_value = torch.zeros_like(key_BKTW, dtype=lse.dtype), torch.zeros_like(value_BKTV, dtype=lse.dtype)
        for queries, keys, visible in work.blocks():
            part, up, dot, total = (x[:, :, :, queries] for x in (query, gradient, along, lse))
            found = work.gradients(part, key_BKTW[:, :, keys], value_BKTV[:, :, keys], up, dot, total, visible)
            d_query.append(found[0])
            d_key[:, :, keys] += found[1]
            d_value[:, :, keys] += found[2]
        whole, d_sinks = torch.cat(d_query, dim=3).flatten(1, 2), sink_gradients(sinks_H, lse, along)
        return whole, d_key.to(key_BKTW.dtype), d_value.to(value_BKTV.dtype), d_sinks, None


def by_head(sinks_H: Tensor, lse_BKGT1: Tensor) -> Tensor:
    """The sinks in the shape of the log-sum-exps."""
    return sinks_H.to(lse_BKGT1.dtype).view(1, lse_BKGT1.shape[1], -1, 1, 1)


def sink_gradients(sinks_H: Tensor | None, lse_BKGT1: Tensor, along_BKGT1: Tensor) -> Tensor | None:
    """d sink, if there are sinks."""
    if sinks_H is None:
        return None
    taken = (by_head(sinks_H, lse_BKGT1) - lse_BKGT1).exp()
    return -(taken * along_BKGT1).sum(dim=(0, 3, 4)).flatten().to(sinks_H.dtype)


def product(left_BKGQN: Tensor, right: Tensor, *, over_queries: bool = False) -> Tensor:
    """A product per key head, for all query heads of its group at once.

    left [B, K, G, Q, N] times right [B, K, N, M] is [B, K, G, Q, M]; over queries, leftᵀ times right [B, K, G, Q, M] is
    [B, K, N, M], summed over the group.
    """
    rows = left_BKGQN.flatten(2, 3)
    if over_queries:
        return rows.mT @ right.flatten(2, 3)
    return (rows @ right).unflatten(2, left_BKGQN.shape[2:4])
