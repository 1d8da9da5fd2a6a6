"""Dual chunk attention (An et al., arXiv 2402.17463): reads texts far longer than the trained ones, without training.

Rotary attention fails at distances that it never saw. Cut the text into chunks of s tokens and let w more be the local window,
s + w at most the trained length. Token j as a key has position j mod s. Token i as a query has position

    i mod s                          for keys of its own chunk:       exact distances
    min(s + i mod s, s + w − 1)      for keys of the chunk before:    exact for a chunk's first w queries
    s + w − 1                        for keys of older chunks:        "far away"

so no distance passes s + w − 1, and one softmax runs over all three sets:

    chunk      0        1        2        3 (the query's)
    query at   s+w−1    s+w−1    s + …    i mod s

While the text fits into one chunk this is plain attention. A key's position does not depend on the query: keys are rotated
once (`rotate_keys`), also in the cache; queries are rotated three times, here.

What the attention layer does: q and k after their norms and before any rotation; `rotate_keys(k)` instead of its rotation;
cache the result; `dual_chunk_attention(q, …)` instead of attend and attend_paged.

Shapes: B rows, H query heads, K key heads, G = H/K, T queries, S keys, W key width, V value width, N tokens of a document.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from ingot.kernels.layer.rotate import rotate
from ingot.model.context import Context
from ingot.model.mixers.mask import Mask
from ingot.model.positions.config import RopeConfig
from ingot.model.positions.rope import rotation
from ingot.workspace.config import Config

BLOCK_NUMBERS = 2**26  # scores that exist at once: 256 MiB of float32


class DualChunkConfig(Config):
    """Dual chunk attention (arXiv 2402.17463): no distance beyond chunk + window is ever used, however long the text."""

    chunk: int = Field(gt=0, description="positions count from zero in every chunk of this many tokens")
    window: int = Field(
        gt=0,
        description="queries of a chunk with exact distances to the chunk before; chunk + window: at most the trained length",
    )


def rotate_keys(key_BKTW: Tensor, context: Context, rope: RopeConfig, config: DualChunkConfig) -> Tensor:
    """The pass's keys rotated by their positions inside their chunks."""
    inside = context.once(("dual_chunk", config, "keys"), lambda: Context(context.positions_BT % config.chunk))
    return rotate(key_BKTW, *rotation(inside, rope, key_BKTW.shape[-1]), rope.pairing)


def dual_chunk_attention(
    query_BHTW: Tensor,
    key_BKSW: Tensor,
    value_BKSV: Tensor,
    context: Context,
    rope: RopeConfig,
    config: DualChunkConfig,
    *,
    scale: float,
) -> Tensor:
    """Attention [B, H, T, V] of unrotated queries to keys from `rotate_keys`.

    Whole sequences: keys and values of the same tokens; each document counts by itself. With a cache: everything that the
    slots hold, at index = position.
    """
    queries = _rotate_queries(query_BHTW, context, rope, config)
    if context.slots_B is not None:
        return _attend_past(queries, key_BKSW, value_BKSV, context.positions_BT, config, scale)
    rows, length = context.positions_BT.shape
    flat_HNW = [x.transpose(0, 1).flatten(1, 2) for x in queries]
    key_KNW, value_KNV = (x.transpose(0, 1).flatten(1, 2) for x in (key_BKSW, value_BKSV))
    mixed_HNV = value_KNV.new_zeros(query_BHTW.shape[1], rows * length, value_KNV.shape[-1])
    for span in Mask().pieces(context):
        own = slice(span.start, span.end)
        document = [x[:, own] for x in flat_HNW]
        mixed_HNV[:, own] = _attend_document(document, key_KNW[:, own], value_KNV[:, own], config.chunk, scale)
    return mixed_HNV.unflatten(1, (rows, length)).transpose(0, 1)


def _rotate_queries(query_BHTW: Tensor, context: Context, rope: RopeConfig, config: DualChunkConfig) -> list[Tensor]:
    """The queries at their three positions: for keys of older chunks, of the chunk before, of their own."""

    def contexts() -> list[Context]:
        own, farthest = context.positions_BT % config.chunk, config.chunk + config.window - 1
        before = (own + config.chunk).clamp_max(farthest)
        return [Context(positions) for positions in (torch.full_like(own, farthest), before, own)]

    width = query_BHTW.shape[-1]
    return [
        rotate(query_BHTW, *rotation(each, rope, width), rope.pairing)
        for each in context.once(("dual_chunk", config, "queries"), contexts)
    ]


def _attend_document(queries: list[Tensor], key_KNW: Tensor, value_KNV: Tensor, chunk: int, scale: float) -> Tensor:
    """One document [H, N, V]: the queries of a chunk see three ranges of keys."""
    heads, length, _ = queries[0].shape
    step = max(1, min(chunk, BLOCK_NUMBERS // (heads * length)))
    mixed = []
    for start in range(0, length, chunk):
        for first in range(start, min(start + chunk, length), step):
            last = min(first + step, start + chunk, length)
            ranges = (slice(0, max(start - chunk, 0)), slice(max(start - chunk, 0), start), slice(start, last))
            scores_HTS = torch.cat(
                [_scores(query[:, first:last], key_KNW[:, keys]) for query, keys in zip(queries, ranges, strict=True)],
                dim=-1,
            )
            index = torch.arange(last, device=key_KNW.device)
            future = index > index[first:last, None]
            mixed.append(_mix(scores_HTS * scale, future, value_KNV[:, :last]))
    return torch.cat(mixed, dim=1)


def _attend_past(
    queries: list[Tensor],
    key_BKSW: Tensor,
    value_BKSV: Tensor,
    positions_BT: Tensor,
    config: DualChunkConfig,
    scale: float,
) -> Tensor:
    """New tokens on cached keys: rows stand in different chunks, so each score is chosen out of three."""
    rows, heads, length, _ = queries[0].shape
    key, value = key_BKSW.to(queries[0].dtype), value_BKSV.to(queries[0].dtype)
    index_S = torch.arange(key.shape[2], device=key.device)
    mixed = []
    for block in range(0, length, step := max(1, BLOCK_NUMBERS // (rows * heads * key.shape[2]))):
        older, before, own = (_scores(query[:, :, block : block + step], key) for query in queries)
        position_B1T1 = positions_BT[:, None, block : block + step, None]
        chunks_apart = position_B1T1 // config.chunk - index_S // config.chunk
        scores = torch.where(chunks_apart == 0, own, torch.where(chunks_apart == 1, before, older))
        mixed.append(_mix(scores * scale, index_S > position_B1T1, value))
    return torch.cat(mixed, dim=2)


def _scores(query_HTW: Tensor, key_KSW: Tensor) -> Tensor:
    """q·k [.., H, T, S] in float32."""
    grouped = query_HTW.unflatten(-3, (key_KSW.shape[-3], -1)).flatten(-3, -2)
    scores = (grouped @ key_KSW.mT).unflatten(-2, (-1, query_HTW.shape[-2])).flatten(-4, -3)
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def _mix(scores_HTS: Tensor, hidden: Tensor, value_KSV: Tensor) -> Tensor:
    """The values weighted by the softmax of the scores, without the hidden keys: [.., H, T, V]."""
    weights = scores_HTS.masked_fill(hidden, -torch.inf).softmax(dim=-1).to(value_KSV.dtype)
    grouped = weights.unflatten(-3, (value_KSV.shape[-3], -1)).flatten(-3, -2)
    return (grouped @ value_KSV).unflatten(-2, (-1, scores_HTS.shape[-2])).flatten(-4, -3)
