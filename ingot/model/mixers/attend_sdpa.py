"""Attention by torch's fused kernel (scaled_dot_product_attention), which takes only causal squares and given masks.

A packed row is cut into pieces that the kernel understands; a plan says where each piece's queries and keys lie in the
flattened batch, and it is made once per pass for all layers with the same mask:

    document or chunk, not longer than the window      one causal square
    longer than the window W                           its first W tokens: one causal square (the window hides nothing there);
                                                       the rest: blocks of Q queries against the Q + W − 1 keys in sight,
                                                       all under the same mask of Q × (Q + W − 1)

Squares of nearly equal length are padded at their end to one length and go through the kernel together: causality already
hides what follows a query, so this needs no mask. Queries, keys and values are gathered once, outputs scattered once.

Shapes: B rows, T tokens, H and K heads, W key width, V value width, N pieces of a call, Q queries and S keys of a piece.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch._compile import _disable_dynamo
from torch.nn.functional import pad, scaled_dot_product_attention

from ingot.kernels.attention.attention_options import AttentionOptions
from ingot.model.context import Context
from ingot.model.document_spans import DocumentSpan
from ingot.model.mixers.mask import Mask

OPTIONS = frozenset(("scale", "window", "chunk"))  # that this backend understands
ALIKE = 0.9  # squares share a call if the shortest has at least this share of the longest's length …
SHORT = 16  # … or if all are this short
BLOCKS = (64, 512)  # fewest and most queries of a banded block: between them, as many as the window


def attend_sdpa(
    query_BHTW: Tensor,
    key_BKTW: Tensor,
    value_BKTV: Tensor,
    mask: Mask,
    context: Context,
    options: AttentionOptions,
) -> Tensor:
    """Causal attention [B, H, T, V] within documents, window and chunk; undefined at padding."""
    scale = options.scale
    query, key, value = same_width(query_BHTW, key_BKTW, value_BKTV)
    if context.documents_BT is None and mask == Mask():
        return first_channels(_fused(query, key, value, None, scale), value_BKTV.shape[-1])
    return first_channels(_attend_pieces(query, key, value, mask, context, scale), value_BKTV.shape[-1])


@_disable_dynamo  # as torch.compiler.disable, which would load the compiler here: a second of every program's start
def _attend_pieces(
    query_BHTW: Tensor, key_BKTW: Tensor, value_BKTV: Tensor, mask: Mask, context: Context, scale: float
) -> Tensor:
    """Attention within the pieces of packed rows. Not compiled: their lengths differ from batch to batch."""
    plan = context.once(("sdpa", mask.window, mask.chunk), lambda: _plan(mask, context))
    queries = _pieces(query_BHTW, plan.queries, [(call.count, call.queries) for call in plan.calls])
    keys = _pieces(key_BKTW, plan.keys, [(call.count, call.keys) for call in plan.calls])
    values = _pieces(value_BKTV, plan.keys, [(call.count, call.keys) for call in plan.calls])
    mixed = [
        _fused(q, k, v, call.band, scale).transpose(1, 2).flatten(0, 1)
        for call, q, k, v in zip(plan.calls, queries, keys, values, strict=True)
    ]
    rows, _, length, _ = query_BHTW.shape
    return torch.cat(mixed).index_select(0, plan.back).unflatten(0, (rows, length)).transpose(1, 2)


def same_width(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Zeros appended where keys and values differ in width: the fused kernels want one width, and zeros change nothing."""
    missing = key.shape[-1] - value.shape[-1]
    if missing > 0:
        return query, key, pad(value, (0, missing))
    return (pad(query, (0, -missing)), pad(key, (0, -missing)), value) if missing < 0 else (query, key, value)


def first_channels(x: Tensor, width: int) -> Tensor:
    """The first `width` channels; a slice that keeps all would still cost a copy in the backward pass."""
    return x if x.shape[-1] == width else x[..., :width]


def _fused(query: Tensor, key: Tensor, value: Tensor, band: Tensor | None, scale: float) -> Tensor:
    """One call of the kernel: causal, or under the mask `band`."""
    group = query.shape[1] // key.shape[1]
    if group > 1 and query.device.type == "cuda" and (query.dtype.itemsize > 2 or band is not None):
        # grouped heads in float32 or under a mask have no fused kernel there: all scores would be made at once
        key, value, group = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1), 1
    return scaled_dot_product_attention(
        query, key, value, band, is_causal=band is None, scale=scale, enable_gqa=group > 1
    )


def _pieces(x_BHTW: Tensor, indices: Tensor, sizes: list[tuple[int, int]]) -> Iterator[Tensor]:
    """The pieces [N, H, length, W] of every call, gathered from the batch."""
    gathered = x_BHTW.transpose(1, 2).flatten(0, 1).index_select(0, indices)
    for part, size in zip(gathered.split([count * length for count, length in sizes]), sizes, strict=True):
        yield part.unflatten(0, size).transpose(1, 2)


@dataclass(frozen=True)
class KernelCall:
    """One call of the kernel: `count` pieces of `queries` queries against `keys` keys."""

    count: int
    queries: int
    keys: int
    band: Tensor | None  # which of its keys a query sees; None: a causal square


@dataclass(frozen=True)
class CallPlan:
    """The calls of a pass, and where their tokens lie in the flattened batch, one call after the other."""

    calls: list[KernelCall]
    queries: Tensor
    keys: Tensor
    back: Tensor  # for every token of the batch, where its output is among the calls' outputs; 0 for padding


Job = tuple[list[DocumentSpan], int, int, Tensor | None]  # pieces, keys before each, queries of each, band


def _plan(mask: Mask, context: Context) -> CallPlan:
    """Squares grouped by length, and all banded blocks in one call. Made on the host, where the spans are."""
    pieces = mask.pieces(context) or [DocumentSpan(0, 1)]  # all padding: any token will do, its output is not used
    rows, length = context.positions_BT.shape
    squares = pieces
    if mask.window is not None:
        squares = [DocumentSpan(piece.start, min(piece.end, piece.start + mask.window)) for piece in pieces]
    jobs: list[Job] = [(group, 0, group[0].end - group[0].start, None) for group in _alike(squares)]
    if mask.window is not None:
        jobs += _bands(pieces, mask.window)
    calls, queries, keys, back, done = [], [], [], torch.zeros(rows * length, dtype=torch.int64), 0
    device = context.positions_BT.device
    for spans, before, size, band in jobs:
        indices, real = _indices(spans, 0, size)
        calls.append(KernelCall(len(spans), size, before + size, None if band is None else band.to(device)))
        queries.append(indices.flatten())
        keys.append(_indices(spans, before, size)[0].flatten())
        back[indices[real]] = done + real.flatten().nonzero().flatten()
        done += indices.numel()
    return CallPlan(calls, torch.cat(queries).to(device), torch.cat(keys).to(device), back.to(device))


def _bands(pieces: list[DocumentSpan], window: int) -> list[Job]:
    """The tokens beyond the first `window` of each piece, in blocks that all see their keys through one band."""
    size, before = min(max(window, BLOCKS[0]), BLOCKS[1]), window - 1
    blocks = [
        DocumentSpan(start, min(start + size, piece.end))
        for piece in pieces
        for start in range(piece.start + window, piece.end, size)
    ]
    distance = torch.arange(size)[:, None] + before - torch.arange(before + size)
    return [(blocks, before, size, (distance >= 0) & (distance <= before))] if blocks else []


def _alike(spans: list[DocumentSpan]) -> Iterator[list[DocumentSpan]]:
    """Groups of nearly equal length, the longest of each first."""
    group: list[DocumentSpan] = []
    for span in sorted(spans, key=lambda span: span.start - span.end):
        longest = group[0].end - group[0].start if group else 0
        if group and longest > SHORT and span.end - span.start < ALIKE * longest:
            yield group
            group = []
        group.append(span)
    yield group


def _indices(spans: list[DocumentSpan], before: int, length: int) -> tuple[Tensor, Tensor]:
    """Token indices [N, before + length] from `before` tokens ahead of each span, and which of them are in it or ahead.

    Past its end a span repeats its last token: those queries are dropped, and those keys lie after every real query.
    """
    start, end = (torch.tensor([getattr(span, side) for span in spans])[:, None] for side in ("start", "end"))
    indices = start + torch.arange(-before, length)
    return torch.minimum(indices, end - 1), indices < end
