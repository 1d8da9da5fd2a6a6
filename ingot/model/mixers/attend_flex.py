"""Attention by torch's flex_attention: a compiled kernel that skips blocks of 128 × 128 scores that the mask hides.

The block mask is read off the interval first_i … i that each query sees (mask.py). For the queries of block n, a key block m
is looked at if  first of the first query < end of m  and  start of m ≤ the last query,  and needs no mask inside if  first of
the last query ≤ start of m  and  end of m ≤ the first query.  Only the grid of blocks is ever made, never T×T booleans, and
nothing waits for the device.

A softcap is a function on scores. A sink s takes its share after the fact: with lse the log-sum-exp of a query's scores,
o · Σe^score / (Σe^score + e^s) = o · σ(lse − s).

On a CUDA device the kernel is compiled; elsewhere the same call runs uncompiled, slowly, with all scores in memory and without
gradients: enough to test the mask.

Shapes: B rows, H query heads, K key heads, T tokens, W key width, V value width.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ingot.kernels.attention.attention_options import AttentionOptions
from ingot.model.context import Context
from ingot.model.mixers.mask import Mask

OPTIONS = frozenset(("scale", "window", "chunk", "softcap", "sinks_H"))  # that this backend understands
BLOCK = 128
NARROWEST = 16  # head of the compiled kernel
DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def flex_allowed(query_BHTW: Tensor, value_BKTV: Tensor) -> bool:
    """The compiled kernel takes: CUDA, at most 32 bits, at least BLOCK tokens, heads of at least NARROWEST channels."""
    if query_BHTW.device.type != "cuda" or query_BHTW.dtype not in DTYPES:
        return False
    # shorter rows would get torch's decoding kernel, which some versions cannot build for lengths that change
    return query_BHTW.shape[2] >= BLOCK and min(query_BHTW.shape[-1], value_BKTV.shape[-1]) >= NARROWEST


def attend_flex(
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

    `peaks` gets each query's largest score [B, H, T]; the kernel knows it only without a softcap.
    """
    from torch.nn.attention.flex_attention import AuxRequest

    softcap, sinks_H = options.softcap, options.sinks_H
    kernel = _kernel(query_BHTW.device.type == "cuda")
    mixed = kernel(
        query_BHTW,
        key_BKTW,
        value_BKTV,
        score_mod=None if softcap is None else _softcap(softcap),
        block_mask=context.once(
            ("flex", mask.window, mask.chunk),
            lambda: block_mask(mask.first(context), context.index_T, key_BKTW.shape[2]),
        ),
        scale=options.scale,
        enable_gqa=query_BHTW.shape[1] != key_BKTW.shape[1],
        return_aux=None
        if sinks_H is None and peaks is None
        else AuxRequest(lse=sinks_H is not None, max_scores=peaks is not None),
    )
    if sinks_H is None and peaks is None:
        return mixed
    mixed, auxiliary = mixed
    if peaks is not None:
        peaks.append(auxiliary.max_scores.detach())
    if sinks_H is None:
        return mixed
    share = torch.sigmoid(auxiliary.lse - sinks_H.to(auxiliary.lse.dtype)[:, None])
    return mixed * share[..., None].to(mixed.dtype)


def block_mask(first_BT: Tensor, index_T: Tensor, keys: int) -> Any:
    """flex_attention's form of the interval first … index that each query sees among the keys of its row."""
    from torch.nn.attention.flex_attention import BlockMask

    length = first_BT.shape[1]
    first_query = torch.arange(0, length, BLOCK, device=first_BT.device)  # of every block
    last_query = (first_query + BLOCK - 1).clamp(max=length - 1)
    start = torch.arange(0, keys, BLOCK, device=first_BT.device)
    earliest, latest = (first_BT[:, query][:, None, :, None] for query in (first_query, last_query))
    seen = (start + BLOCK > earliest) & (start <= index_T[last_query, None])
    whole = (start >= latest) & (start + BLOCK - 1 <= index_T[first_query, None])

    def visible(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        return (key >= first_BT[row, query]) & (key <= index_T[query])

    return BlockMask.from_kv_blocks(
        *_listed(seen & ~whole),
        *_listed(whole),
        BLOCK_SIZE=BLOCK,
        mask_mod=visible,
        seq_lengths=(length, keys),
    )


def _listed(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """How many key blocks each query block has, and their numbers, the chosen ones first."""
    order = chosen.to(torch.int8).argsort(dim=-1, descending=True, stable=True)
    return chosen.sum(dim=-1, dtype=torch.int32), order.to(torch.int32)


def _softcap(cap: float) -> Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]:
    return lambda score, row, head, query, key: cap * torch.tanh(score / cap)


@cache
def _kernel(compiled: bool) -> Any:
    """flex_attention, compiled where that is how it becomes fast."""
    from torch.nn.attention.flex_attention import flex_attention

    return torch.compile(flex_attention) if compiled else flex_attention
