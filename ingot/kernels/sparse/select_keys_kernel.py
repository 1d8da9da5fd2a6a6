"""Triton kernels of select_keys.py: the indexer's scores, and the choice of each query's largest.

* `score_kernel`: BLOCK_T queries × BLOCK_S keys. The keys' tile stays, the heads' queries pass by, Σ_j w_j relu(q_j·k) is kept.
* `page_score_kernel`: one query × BLOCK_S keys out of pages; its heads are the rows of one product. For decoding.
* `select_kernel`: one query; its scores, up to BLOCK of them, lie in registers as unsigned numbers of the same order:

      u(x) = bits(x) xor (all ones if x < 0, else the sign bit)

  The threshold grows from the highest bit: a bit stays set if at least K scores reach the threshold with it. The search ends
  early when exactly K do. The places of what is taken are prefix sums, so the chosen keys are in ascending order.

Longer rows are cut into segments. Each gives its K best, of which the same kernel takes the K best: that is exact.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ingot.kernels.attention.attend_paged import precision
from ingot.kernels.attention.blocks import blocks
from ingot.kernels.launch import on_device_of, power_of_two

# Scores that lie in the registers of one program: 16 for each of 1,024 threads, with a few spilled to memory. On an H200 2,048
# queries choose among 16,384 keys in 365 µs, and in 538 µs with segments of half the length.
LONGEST = 16384


class ScoreTile(NamedTuple):
    """Sizes of a program of `score_kernel`."""

    block_t: int  # queries
    block_s: int  # keys
    warps: int
    stages: int


def choose_score_tile(width: int, bytes_per_number: int) -> ScoreTile:
    """Two tiles of float32 in registers, the sum and a head's products: 128 × 128 are 64 KB each.

    Keys and the queries of `stages` heads are in shared memory: 32 KB each at 128 × 128 in 16 bits.
    """
    if bytes_per_number == 4:
        return ScoreTile(32, 32, warps=4, stages=2)
    if width > 128:
        return ScoreTile(64, 128, warps=8, stages=2)
    return ScoreTile(128, 128, warps=8, stages=3)


@triton.jit
def score_kernel(
    query,  # [B, T, H, W], any strides but the last
    weight,  # [B, H, T], float32
    key,  # [B, S, W]
    first,  # [B, T]
    last,  # [B, T]
    out,  # [B, tokens, width]
    begin,  # the block's first query; it has `tokens` of the row's `length`
    tokens,
    length,
    heads,
    keys,
    width,
    query_b,
    query_t,
    query_h,
    W: tl.constexpr,
    BLOCK_W: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_S: tl.constexpr,
):
    """The scores of the keys below `width`; nothing where no query of the tile sees a key of it."""
    row = tl.program_id(2).to(tl.int64)
    place = tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
    column = tl.program_id(0) * BLOCK_S + tl.arange(0, BLOCK_S)
    inside = place < tokens
    token = begin + tl.minimum(place, tokens - 1)
    lowest = tl.min(tl.load(first + row * length + token), 0)
    highest = tl.max(tl.load(last + row * length + token), 0)
    start = tl.program_id(0) * BLOCK_S
    if (start > highest) | (start + BLOCK_S <= lowest):
        return

    channel = tl.arange(0, BLOCK_W)
    near = tl.minimum(column, keys - 1).to(tl.int64)
    narrow = (channel < W)[None, :]
    found = tl.load(key + (row * keys + near)[:, None] * W + channel[None, :], mask=narrow, other=0.0)
    found = tl.trans(found)
    at = query + row * query_b + token.to(tl.int64)[:, None] * query_t + channel[None, :]
    weights = weight + row * heads * length + token
    score = tl.zeros((BLOCK_T, BLOCK_S), dtype=tl.float32)
    for head in range(heads):
        asked = tl.load(at, mask=narrow, other=0.0)
        at += query_h
        share = tl.load(weights + head * length)
        score += share[:, None] * tl.maximum(tl.dot(asked, found, input_precision=PRECISION), 0.0)
    to = out + (row * tokens + place.to(tl.int64))[:, None] * width + column[None, :]
    tl.store(to, score, mask=inside[:, None] & (column < width)[None, :])


@triton.jit
def page_score_kernel(
    query,  # [B, T, H, W], contiguous
    weight,  # [B, T, H]
    keys,  # [N, 1, P, W]
    table,  # [B, pages]
    positions,  # [B, T]
    out,  # [B, T, width]
    tokens,
    heads,
    pages,
    width,
    keys_n,
    scale,  # of the weights
    PAGE: tl.constexpr,
    W: tl.constexpr,
    BLOCK_W: tl.constexpr,
    BLOCK_H: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_S: tl.constexpr,
):
    """The scores of the positions up to each query's own."""
    item = tl.program_id(1).to(tl.int64)
    start = tl.program_id(0) * BLOCK_S
    last = tl.load(positions + item)
    if start > last:
        return
    column = start + tl.arange(0, BLOCK_S)
    near = tl.minimum(column, last).to(tl.int32)
    channel, head = tl.arange(0, BLOCK_W), tl.arange(0, BLOCK_H)
    page = tl.load(table + item // tokens * pages + near // PAGE).to(tl.int64)
    at = keys + page * keys_n + near % PAGE * W
    there = (head < heads)[:, None] & (channel < W)[None, :]
    asked = tl.load(query + (item * heads + head)[:, None] * W + channel[None, :], mask=there, other=0.0)
    found = tl.load(at[:, None] + channel[None, :], mask=(channel < W)[None, :], other=0.0).to(asked.dtype)
    share = tl.load(weight + item * heads + head, mask=head < heads, other=0.0).to(tl.float32) * scale
    product = tl.maximum(tl.dot(asked, tl.trans(found), input_precision=PRECISION), 0.0)
    tl.store(out + item * width + column, tl.sum(share[:, None] * product, 0), mask=column <= last)


@triton.jit
def select_kernel(
    scores,  # [N, width]
    indices,  # [N, width]: the keys of the scores, with HAS_INDICES
    first,  # [N], or None for 0: else key = column, and those from first to last count
    last,  # [N]
    out,  # [N, segments, K]
    out_scores,  # [N, segments, K], where there are several segments
    width,
    keep,
    HAS_INDICES: tl.constexpr,
    WANTS_SCORES: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    """The `keep` largest of a segment of BLOCK scores."""
    item = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    if HAS_INDICES:
        name = tl.load(indices + item * width + column, mask=inside, other=-1)
        inside &= name >= 0
    else:
        name = column
        inside &= column <= tl.load(last + item)
        if first is not None:
            inside &= column >= tl.load(first + item)
    score = tl.load(scores + item * width + column, mask=inside, other=0.0)
    bits = score.to(tl.uint32, bitcast=True)
    rank = tl.where((bits >> 31) != 0, bits ^ 0xFFFFFFFF, bits ^ 0x80000000)
    # 0 is what does not count: from here on a key's rank alone takes room in registers
    rank = tl.where(inside, tl.maximum(rank, 1), 0)

    there = tl.sum(inside.to(tl.int32), 0)
    threshold = tl.full((), 0, dtype=tl.uint32)
    bit = tl.where(there > keep, 31, -1)
    while bit >= 0:
        higher = threshold | (tl.full((), 1, dtype=tl.uint32) << bit.to(tl.uint32))
        reached = tl.sum((rank >= higher).to(tl.int32), 0)
        threshold = tl.where(reached >= keep, higher, threshold)
        bit = tl.where(reached == keep, -1, bit - 1)

    above = rank > threshold
    tied = (rank == threshold) & (rank > 0)
    spare = keep - tl.sum(above.to(tl.int32), 0)
    # both counts in one prefix sum: a segment has less than 2¹⁶ scores
    counts = above.to(tl.int32) * 65536 + tied.to(tl.int32)
    before = tl.cumsum(counts, 0) - counts
    earlier = before & 65535
    place = (before >> 16) + tl.minimum(earlier, spare)
    taken = above | (tied & (earlier < spare))
    to = (item * tl.num_programs(1) + tl.program_id(1)) * keep
    if HAS_INDICES:
        name = tl.load(indices + item * width + column, mask=taken, other=-1)
    tl.store(out + to + place, name, mask=taken)
    if WANTS_SCORES:
        bits = tl.where((rank >> 31) != 0, rank ^ 0x80000000, rank ^ 0xFFFFFFFF)
        tl.store(out_scores + to + place, bits.to(tl.float32, bitcast=True), mask=taken)
    rest = tl.arange(0, BLOCK_K)
    tl.store(out + to + rest, tl.full((BLOCK_K,), -1, dtype=tl.int32), mask=(rest < keep) & (rest >= there))


def choose_largest(scores_NS: Tensor, first_N: Tensor | None, last_N: Tensor, keep: int) -> Tensor:
    """The columns [N, K] of each row's `keep` largest scores from first (or 0) to last, in ascending order, then −1."""
    queries, width = scores_NS.shape
    indices: Tensor | None = None
    while True:
        block = min(max(LONGEST, power_of_two(4 * keep)), power_of_two(width))  # each round leaves a quarter at most
        segments = triton.cdiv(width, block)
        chosen = torch.empty(queries, segments * keep, dtype=torch.int32, device=scores_NS.device)
        best = torch.empty_like(chosen, dtype=torch.float32) if segments > 1 else scores_NS
        with on_device_of(scores_NS):
            select_kernel[(queries, segments)](
                scores_NS,
                chosen if indices is None else indices,
                first_N,
                last_N,
                chosen,
                best,
                width,
                keep,
                HAS_INDICES=indices is not None,
                WANTS_SCORES=segments > 1,
                BLOCK=block,
                BLOCK_K=power_of_two(keep),
                num_warps=max(1, min(32, block // 512)),
            )
        if segments == 1:
            return chosen
        scores_NS, indices, width = best, chosen, segments * keep


def launch_scores(
    query: Tensor, weight_BHT: Tensor, key: Tensor, first: Tensor, last: Tensor, scores: Tensor, *, begin: int
) -> None:
    """Writes the scores [B, tokens, width] of the queries from `begin` on; weights are scaled, and float32."""
    (rows, length, heads, width), (_, tokens, reach) = query.shape, scores.shape
    tile = choose_score_tile(width, query.element_size())
    with on_device_of(query):
        score_kernel[(triton.cdiv(reach, tile.block_s), triton.cdiv(tokens, tile.block_t), rows)](
            query,
            weight_BHT,
            key,
            first,
            last,
            scores,
            begin,
            tokens,
            length,
            heads,
            key.shape[1],
            reach,
            *query.stride()[:3],
            W=width,
            BLOCK_W=power_of_two(width),
            PRECISION=precision(query),
            BLOCK_T=tile.block_t,
            BLOCK_S=tile.block_s,
            num_warps=tile.warps,
            num_stages=tile.stages,
        )


@torch.library.custom_op("ingot::select_keys", mutates_args=())
def select_keys_operator(
    query: Tensor, weight: Tensor, key: Tensor, first: Tensor, last: Tensor, keep: int, past: int
) -> Tensor:
    """The chosen keys [B, T, K], in blocks of queries whose scores fit."""
    rows, length, heads, width = query.shape
    keys = key.shape[1]
    query = query if query.stride(-1) == 1 else query.contiguous()
    key, first, last = key.contiguous(), first.expand(rows, length).contiguous(), last.expand(rows, length).contiguous()
    weight_BHT = (weight.float() * (heads * width) ** -0.5).transpose(1, 2).contiguous()
    chosen = torch.empty(rows, length, keep, dtype=torch.int32, device=query.device)
    for block in blocks(length, rows * keys):
        reach, tokens = min(past + block.stop, keys), block.stop - block.start
        scores = torch.empty(rows, tokens, reach, dtype=torch.float32, device=query.device)
        if reach > keep:  # else all that is seen is kept, whatever its score
            launch_scores(query, weight_BHT, key, first, last, scores, begin=block.start)
        lowest, highest = (each[:, block].reshape(-1) for each in (first, last))
        chosen[:, block] = choose_largest(scores.view(-1, reach), lowest, highest, keep).view(rows, tokens, keep)
    return chosen


@select_keys_operator.register_fake
def _(query: Tensor, weight: Tensor, key: Tensor, first: Tensor, last: Tensor, keep: int, past: int) -> Tensor:
    return query.new_empty(*query.shape[:2], keep, dtype=torch.int32)


def select_from_pages(
    query_BTHW: Tensor, weight_BTH: Tensor, keys_N1PW: Tensor, table_BR: Tensor, positions_BT: Tensor, keep: int
) -> Tensor:
    """The chosen positions [B, T, K]. Shapes alone decide what is launched: a captured graph serves rows of any length."""
    rows, tokens, heads, width = query_BTHW.shape
    page, pages = keys_N1PW.shape[2], table_BR.shape[1]
    reach = page * pages
    scores = torch.empty(rows * tokens, reach, dtype=torch.float32, device=query_BTHW.device)
    positions = positions_BT.contiguous()
    block_h, block_s = power_of_two(heads), 64
    with on_device_of(query_BTHW):
        page_score_kernel[(triton.cdiv(reach, block_s), rows * tokens)](
            query_BTHW.contiguous(),
            weight_BTH.contiguous(),
            keys_N1PW,
            table_BR.contiguous(),
            positions,
            scores,
            tokens,
            heads,
            pages,
            reach,
            keys_N1PW.stride(0),
            (heads * width) ** -0.5,
            PAGE=page,
            W=width,
            BLOCK_W=power_of_two(width),
            BLOCK_H=block_h,
            PRECISION=precision(query_BTHW),
            BLOCK_S=block_s,
            num_warps=4,
        )
    return choose_largest(scores, None, positions.view(-1), keep).view(rows, tokens, keep)
