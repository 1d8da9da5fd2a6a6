"""Attention in plain PyTorch with bounded memory: each block of queries against only the keys that it can see.

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

from ingot.model.context import Context
from ingot.model.mixers.mask import Mask

QUERIES = 128  # per block


def attend_blocks(
    query_BHTW: Tensor,
    key_BKTW: Tensor,
    value_BKTV: Tensor,
    mask: Mask,
    context: Context,
    *,
    scale: float,
    softcap: float | None = None,
    sinks_H: Tensor | None = None,
) -> Tensor:
    """Causal attention [B, H, T, V] within documents, window and chunk; padding counts as a document."""
    first_BT = mask.first(context)
    lows = context.once(("blocks", mask), lambda: first_BT[:, ::QUERIES].amin(dim=0).tolist())
    options = Options(first_BT, lows, scale, softcap)
    mixed: Tensor = _Blocks.apply(query_BHTW, key_BKTW, value_BKTV, sinks_H, options)  # type: ignore[no-untyped-call]
    return mixed


@dataclass(frozen=True)
class Options:
    """What both passes need besides the tensors that have gradients."""

    first_BT: Tensor
    lows: list[int]  # the first key that any query of each block sees
    scale: float
    softcap: float | None

    def blocks(self) -> Iterator[tuple[slice, slice, Tensor]]:
        """Queries, keys, and which of the keys each query sees [B, 1, 1, Q, S]."""
        length = self.first_BT.shape[1]
        index = torch.arange(length, device=self.first_BT.device)
        for start, low in zip(range(0, length, QUERIES), self.lows, strict=True):
            queries, keys = slice(start, start + QUERIES), slice(low, min(start + QUERIES, length))
            visible = (index[keys] >= self.first_BT[:, queries, None]) & (index[keys] <= index[queries, None])
            yield queries, keys, visible[:, None, None]

    def scores(self, query_BKGQW: Tensor, key_BKSW: Tensor) -> Tensor:
        """Scaled and capped, in float32 at least: [B, K, G, Q, S]."""
        scores = _product(query_BKGQW, key_BKSW.mT)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32)) * self.scale
        return scores if self.softcap is None else self.softcap * torch.tanh(scores / self.softcap)


class _Blocks(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, query_BHTW: Tensor, key_BKTW: Tensor, value_BKTV: Tensor, sinks_H: Tensor | None, options: Options
    ) -> Tensor:
        key_heads = key_BKTW.shape[1]
        query = query_BHTW.unflatten(1, (key_heads, -1))
        mixed, sums = [], []
        for queries, keys, visible in options.blocks():
            scores = options.scores(query[:, :, :, queries], key_BKTW[:, :, keys])
            lse = scores.masked_fill_(~visible, -torch.inf).logsumexp(dim=-1, keepdim=True)
            if sinks_H is not None:
                lse = torch.logaddexp(lse, sinks_H.to(lse.dtype).view(1, key_heads, -1, 1, 1))
            weights = scores.sub_(lse).exp_()
            mixed.append(_product(weights.to(value_BKTV.dtype), value_BKTV[:, :, keys]))
            sums.append(lse)
        output = torch.cat(mixed, dim=3).flatten(1, 2)
        ctx.options = options
        ctx.save_for_backward(query_BHTW, key_BKTW, value_BKTV, sinks_H, output, torch.cat(sums, dim=3))
        return output

    @staticmethod
    def backward(ctx: Any, gradient_BHTV: Tensor) -> tuple[Tensor | None, ...]:
        query_BHTW, key_BKTW, value_BKTV, sinks_H, output_BHTV, lse = ctx.saved_tensors
        options: Options = ctx.options
        grouped = (1, (key_BKTW.shape[1], -1))
        query, output, gradient = (x.unflatten(*grouped) for x in (query_BHTW, output_BHTV, gradient_BHTV))
        along = (gradient.to(lse.dtype) * output.to(lse.dtype)).sum(dim=-1, keepdim=True)  # do·o [B, K, G, T, 1]
        d_query = []
        d_key, d_value = torch.zeros_like(key_BKTW, dtype=lse.dtype), torch.zeros_like(value_BKTV, dtype=lse.dtype)
        for queries, keys, visible in options.blocks():
            part, up, key = query[:, :, :, queries], gradient[:, :, :, queries], key_BKTW[:, :, keys]
            scores = options.scores(part, key)
            weights = (scores - lse[:, :, :, queries]).exp_().masked_fill_(~visible, 0)
            d_value[:, :, keys] += _product(weights.to(up.dtype), up, over_queries=True)
            d_scores = _product(up, value_BKTV[:, :, keys].mT).to(lse.dtype)
            d_scores.sub_(along[:, :, :, queries]).mul_(weights)
            if options.softcap is not None:
                d_scores.mul_(1 - (scores / options.softcap).square_())
            d_scores = d_scores.mul_(options.scale).to(query.dtype)
            d_query.append(_product(d_scores, key))
            d_key[:, :, keys] += _product(d_scores, part, over_queries=True)
        d_sinks = None
        if sinks_H is not None:
            taken = (sinks_H.to(lse.dtype).view(1, key_BKTW.shape[1], -1, 1, 1) - lse).exp()
            d_sinks = -(taken * along).sum(dim=(0, 3, 4)).flatten().to(sinks_H.dtype)
        whole = torch.cat(d_query, dim=3).flatten(1, 2)
        return whole, d_key.to(key_BKTW.dtype), d_value.to(value_BKTV.dtype), d_sinks, None


def _product(left_BKGQN: Tensor, right: Tensor, *, over_queries: bool = False) -> Tensor:
    """A product per key head, for all query heads of its group at once.

    left [B, K, G, Q, N] times right [B, K, N, M] is [B, K, G, Q, M]; over queries, leftᵀ times right [B, K, G, Q, M] is
    [B, K, N, M], summed over the group.
    """
    rows = left_BKGQN.flatten(2, 3)
    if over_queries:
        return rows.mT @ right.flatten(2, 3)
    return (rows @ right).unflatten(2, left_BKGQN.shape[2:4])
