"""Triton kernels of the backward pass of sparse_attention.py, one for each gradient.

    P = 2^(S − lse)     ∂S = scale · P ∘ (∂o·c − Σ_l ∂o∘o)     `score_gradient_kernel`, which writes P and ∂S
    ∂q = ∂S e                                                  `query_gradient_kernel`: a product with the gathered entries
    ∂e = ∂Sᵀ q + Pᵀ ∂o                                         `entry_gradient_kernel`: products, then added to the entries

P and ∂S are written for PART bytes of queries at a time, in the precision of the inputs, as [queries, K, H]. A single kernel
would write nothing, but needs registers for ∂q, ∂e and the scores at once, so its tiles are small: it took twice as long as these
three (docs/log.md). All heads of a query add to ∂e together, atomically and in float32.

Loops over gathered entries read the indices of the tile that follows: Triton then fetches entries ahead of their use. An index
that is read in the same turn would have to be waited for, and with it all that is under way.

Invariants and names as in sparse_attention_kernel.py. What is behind a query's last index is neither written nor used.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ingot.kernels.attention.attend_paged import precision
from ingot.kernels.attention.attend_paged_kernel import _tile
from ingot.kernels.launch import on_device_of, power_of_two
from ingot.kernels.sparse.gather_kernel import _count, _heads, _indices
from ingot.kernels.sparse.sparse_tile import SparseTile

PART = 2**30  # bytes of P and ∂S together


class ProductTile(NamedTuple):
    """Sizes of a program of the two products."""

    block_h: int  # heads
    block_n: int  # chosen entries
    block_c: int  # channels
    warps: int
    stages: int


def choose_score_tile(heads: int, bytes_per_number: int) -> SparseTile:
    """Entries are the rows of the products: 64 are enough for four warps together, however few heads there are.

    In 16 bits queries and ∂o of 32 heads take 68 KB of shared memory, 64 entries 72 KB in each of two buffers.
    """
    if bytes_per_number == 4:
        return SparseTile(16, 16, warps=4, stages=1)
    return SparseTile(16 if heads <= 16 else 32, 64, warps=4, stages=2)


def choose_query_tile(heads: int, bytes_per_number: int) -> ProductTile:
    """Sums of 128 heads × 256 channels are half the registers; entries are gathered once for all these heads."""
    if bytes_per_number == 4:
        return ProductTile(16, 16, 64, warps=4, stages=1)
    block_h = min(128, power_of_two(heads))
    return ProductTile(block_h, 64, 256, warps=8 if block_h == 128 else 4, stages=3)


def choose_entry_tile(heads: int, bytes_per_number: int) -> ProductTile:
    """Sums of 128 entries × 256 channels; the heads pass by."""
    if bytes_per_number == 4:
        return ProductTile(16, 32, 64, warps=4, stages=1)
    return ProductTile(min(32, power_of_two(heads)), 128, 256, warps=8, stages=4)


@triton.jit
def score_gradient_kernel(
    query,  # [B, T, H, L + R], contiguous as all that follows
    entries,  # [B, S, L + R]
    selected,  # [B, T, K]
    out,  # [B, T, H, L]
    sums,  # [B, T, H]
    of_out,  # [B, T, H, L]
    weights,  # [queries of this part, K, H]
    of_scores,  # [queries of this part, K, H]
    first,  # query of this part
    tokens,
    heads,
    kept,
    keys,
    scale,
    scale_two,  # of scores in powers of two
    L: tl.constexpr,
    R: tl.constexpr,
    BLOCK_L: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCKS: tl.constexpr,  # of heads
    PRECISION: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """P and ∂S of one query and BLOCK_H of its heads."""
    own = (tl.program_id(0) // BLOCKS).to(tl.int64)
    item = first + own
    row = item // tokens
    head = tl.program_id(0) % BLOCKS * BLOCK_H + tl.arange(0, BLOCK_H)
    inside = head < heads
    selected += item * kept
    count = _count(selected, kept, BLOCK_K)
    weights += own * kept * heads
    of_scores += own * kept * heads

    index = item * heads + head
    asked = _heads(query + index * (L + R), 1, inside, 0, L, BLOCK_L)
    asked_rotated = _heads(query + index * (L + R), 1, inside, L, R, BLOCK_R)
    given = _heads(of_out + index * L, 1, inside, 0, L, BLOCK_L)
    mixed = _heads(out + index * L, 1, inside, 0, L, BLOCK_L)
    mean = tl.sum(given.to(tl.float32) * mixed.to(tl.float32), 1)
    total = tl.load(sums + index, mask=inside, other=0.0)

    chosen = _indices(selected, 0, count, BLOCK_N)
    for start in range(0, count, BLOCK_N):
        following = _indices(selected, start + BLOCK_N, count, BLOCK_N)
        offset = (row * keys + tl.maximum(chosen, 0)) * (L + R)
        latent = _tile(entries + offset, L, BLOCK_L)
        found = _tile(entries + offset + L, R, BLOCK_R)
        score = tl.dot(latent, tl.trans(asked), input_precision=PRECISION)
        score = tl.dot(found, tl.trans(asked_rotated), score, input_precision=PRECISION)
        of_weight = tl.dot(latent, tl.trans(given), input_precision=PRECISION)
        weight = tl.where((chosen >= 0)[:, None], tl.exp2(score * scale_two - total[None, :]), 0.0)
        of_score = weight * (of_weight - mean[None, :]) * scale
        place = start + tl.arange(0, BLOCK_N)
        to = place[:, None] * heads + head[None, :]
        stored = (place < count)[:, None] & inside[None, :]
        tl.store(weights + to, weight.to(weights.dtype.element_ty), mask=stored)
        tl.store(of_scores + to, of_score.to(of_scores.dtype.element_ty), mask=stored)
        chosen = following


@triton.jit
def query_gradient_kernel(
    entries,  # [B, S, L + R]
    selected,  # [B, T, K]
    of_scores,  # [queries of this part, K, H]
    of_query,  # [B, T, H, L + R]
    first,
    tokens,
    heads,
    kept,
    keys,
    W: tl.constexpr,  # L + R
    BEGIN: tl.constexpr,  # of the channels
    END: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCKS_H: tl.constexpr,
    BLOCKS_C: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """BLOCK_C channels of ∂query for one query and BLOCK_H of its heads."""
    own = (tl.program_id(0) // (BLOCKS_H * BLOCKS_C)).to(tl.int64)
    item = first + own
    row = item // tokens
    channel = BEGIN + tl.program_id(0) % BLOCKS_C * BLOCK_C + tl.arange(0, BLOCK_C)
    head = tl.program_id(0) // BLOCKS_C % BLOCKS_H * BLOCK_H + tl.arange(0, BLOCK_H)
    there = head < heads
    inside = channel < END
    selected += item * kept
    count = _count(selected, kept, BLOCK_K)
    of_scores += own * kept * heads

    total = tl.zeros((BLOCK_H, BLOCK_C), dtype=tl.float32)
    chosen = _indices(selected, 0, count, BLOCK_N)
    for start in range(0, count, BLOCK_N):
        following = _indices(selected, start + BLOCK_N, count, BLOCK_N)
        place = start + tl.arange(0, BLOCK_N)
        at = of_scores + head[:, None] + place[None, :] * heads
        of_score = tl.load(at, mask=there[:, None] & (place < count)[None, :], other=0.0)
        entry = entries + (row * keys + tl.maximum(chosen, 0)) * W
        found = tl.load(entry[:, None] + channel[None, :], mask=inside[None, :], other=0.0)
        total = tl.dot(of_score, found, total, input_precision=PRECISION)
        chosen = following

    to = (of_query + (item * heads + head) * W)[:, None] + channel[None, :]
    tl.store(to, total.to(of_query.dtype.element_ty), mask=there[:, None] & inside[None, :])


@triton.jit
def entry_gradient_kernel(
    query,  # [B, T, H, L + R]
    of_out,  # [B, T, H, L]
    selected,  # [B, T, K]
    weights,  # [queries of this part, K, H]
    of_scores,  # [queries of this part, K, H]
    of_entries,  # [B, S, L + R], float32
    first,
    tokens,
    heads,
    kept,
    keys,
    W: tl.constexpr,  # L + R
    L: tl.constexpr,
    BEGIN: tl.constexpr,  # of the channels, all of the latent or all behind it
    END: tl.constexpr,
    BLOCKS_N: tl.constexpr,
    BLOCKS_C: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_C: tl.constexpr,
):
    """Adds one query's share of BLOCK_C channels to the ∂entries of BLOCK_N of its chosen keys."""
    own = (tl.program_id(0) // (BLOCKS_N * BLOCKS_C)).to(tl.int64)
    item = first + own
    row = item // tokens
    place = tl.program_id(0) // BLOCKS_C % BLOCKS_N * BLOCK_N + tl.arange(0, BLOCK_N)
    channel = BEGIN + tl.program_id(0) % BLOCKS_C * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = (channel < END)[None, :]
    chosen = tl.load(selected + item * kept + place, mask=place < kept, other=-1)
    if tl.max(chosen, 0) < 0:
        return
    seen = (chosen >= 0)[:, None]
    weights += own * kept * heads
    of_scores += own * kept * heads

    total = tl.zeros((BLOCK_N, BLOCK_C), dtype=tl.float32)
    for start in range(0, heads, BLOCK_H):
        head = start + tl.arange(0, BLOCK_H)
        there = head < heads
        index = (item * heads + head)[:, None]
        at = place[:, None] * heads + head[None, :]
        of_score = tl.load(of_scores + at, mask=seen & there[None, :], other=0.0)
        asked = tl.load(query + index * W + channel[None, :], mask=there[:, None] & inside, other=0.0)
        total = tl.dot(of_score, asked, total, input_precision=PRECISION)
        if BEGIN < L:
            weight = tl.load(weights + at, mask=seen & there[None, :], other=0.0)
            given = tl.load(of_out + index * L + channel[None, :], mask=there[:, None] & inside, other=0.0)
            total = tl.dot(weight, given, total, input_precision=PRECISION)

    to = (of_entries + (row * keys + tl.maximum(chosen, 0)) * W)[:, None] + channel[None, :]
    tl.atomic_add(to, total, mask=seen & inside, sem="relaxed")


def sparse_gradients(
    query_BTHE: Tensor,
    entry_BSE: Tensor,
    selected_BTK: Tensor,
    out_BTHL: Tensor,
    sums_BTH: Tensor,
    of_out_BTHL: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """∂query, and ∂entry in float32; all inputs are contiguous."""
    rows, tokens, heads, width = query_BTHE.shape
    latent_width, kept, keys = out_BTHL.shape[-1], selected_BTK.shape[-1], entry_BSE.shape[1]
    of_query = torch.empty_like(query_BTHE)
    of_entry = torch.zeros(entry_BSE.shape, dtype=torch.float32, device=entry_BSE.device)
    size, queries = query_BTHE.element_size(), rows * tokens
    part = min(queries, max(1, PART // (2 * heads * kept * size)))
    if not query_BTHE.numel():
        return of_query, of_entry
    weights = query_BTHE.new_empty(part, kept, heads)
    of_scores = torch.empty_like(weights)
    tile, at_query = choose_score_tile(heads, size), choose_query_tile(heads, size)
    at_entry = choose_entry_tile(heads, size)
    sizes = (tokens, heads, kept, keys)
    shared = {"BLOCK_K": power_of_two(kept), "PRECISION": precision(query_BTHE)}
    with on_device_of(query_BTHE):
        for first in range(0, queries, part):
            count = min(part, queries - first)
            head_blocks = triton.cdiv(heads, tile.block_h)
            score_gradient_kernel[(count * head_blocks,)](
                query_BTHE,
                entry_BSE,
                selected_BTK,
                out_BTHL,
                sums_BTH,
                of_out_BTHL,
                weights,
                of_scores,
                first,
                *sizes,
                scale,
                scale * math.log2(math.e),
                L=latent_width,
                R=width - latent_width,
                BLOCK_L=power_of_two(latent_width),
                BLOCK_R=power_of_two(width - latent_width),
                BLOCKS=head_blocks,
                **shared,
                BLOCK_H=tile.block_h,
                BLOCK_N=tile.block_n,
                num_warps=tile.warps,
                num_stages=tile.stages,
            )
            for begin, end in ((0, latent_width), (latent_width, width)):
                channels = {"W": width, "BEGIN": begin, "END": end}
                block_c = min(at_query.block_c, power_of_two(end - begin))
                blocks_h, blocks_c = triton.cdiv(heads, at_query.block_h), triton.cdiv(end - begin, block_c)
                query_gradient_kernel[(count * blocks_h * blocks_c,)](
                    entry_BSE,
                    selected_BTK,
                    of_scores,
                    of_query,
                    first,
                    *sizes,
                    **channels,
                    BLOCKS_H=blocks_h,
                    BLOCKS_C=blocks_c,
                    **shared,
                    BLOCK_H=at_query.block_h,
                    BLOCK_N=at_query.block_n,
                    BLOCK_C=block_c,
                    num_warps=at_query.warps,
                    num_stages=at_query.stages,
                )
                block_c = min(at_entry.block_c, power_of_two(end - begin))
                blocks_n, blocks_c = triton.cdiv(kept, at_entry.block_n), triton.cdiv(end - begin, block_c)
                entry_gradient_kernel[(count * blocks_n * blocks_c,)](
                    query_BTHE,
                    of_out_BTHL,
                    selected_BTK,
                    weights,
                    of_scores,
                    of_entry,
                    first,
                    *sizes,
                    **channels,
                    L=latent_width,
                    BLOCKS_N=blocks_n,
                    BLOCKS_C=blocks_c,
                    PRECISION=shared["PRECISION"],
                    BLOCK_H=at_entry.block_h,
                    BLOCK_N=at_entry.block_n,
                    BLOCK_C=block_c,
                    num_warps=at_entry.warps,
                    num_stages=at_entry.stages,
                )
    return of_query, of_entry
