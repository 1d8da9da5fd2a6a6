"""Triton kernels of sparse_attention.py, as operators that torch.compile leaves whole.

A program takes one query and BLOCK_H of its heads. It reads the indices of the query's entries, gathers BLOCK_N entries at a time
and keeps a running softmax in powers of two, as the kernels over pages do (attend_paged_kernel.py). In decoding, where there are
few queries, programs share a query's entries and `combine` adds up their parts. Gradients: sparse_gradients_kernel.py.

Invariants: what lies behind an index below 0 never counts; a program stops after the query's last index that is not. Grids
depend on shapes alone, so a captured graph serves any choice.

Names: L latent, R rotated part of an entry; BLOCK_* are powers of two that hold them.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ingot.kernels.attention.attend_paged import choose_splits, combine, precision, split_buffers
from ingot.kernels.attention.attend_paged_kernel import NOTHING, _softmax_step, _store, _tile
from ingot.kernels.launch import dependent_launch, on_device_of, power_of_two
from ingot.kernels.launch_kernel import launch_dependents, wait
from ingot.kernels.sparse import sparse_tile
from ingot.kernels.sparse.gather_kernel import _count, _heads, _indices
from ingot.kernels.sparse.sparse_gradients_kernel import sparse_gradients
from ingot.kernels.sparse.sparse_tile import SparseTile


@triton.jit
def forward_kernel(
    query,  # [B, T, H, L + R], any strides
    entries,  # [B, S, L + R], or pages [N, 1, P, L + R]
    table,  # [B, pages], only with pages
    selected,  # [B, T, K]
    out,  # [SPLITS, B, T, H, L]
    sums,  # [SPLITS, B, T, H]: log₂ Σ 2^score
    tokens,
    heads,
    kept,
    pages,
    scale,  # of scores in powers of two
    query_b,
    query_t,
    query_h,
    query_e,
    entries_n,  # from row to row, or from page to page
    PAGE: tl.constexpr,  # 0: no pages
    L: tl.constexpr,
    R: tl.constexpr,
    BLOCK_L: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCKS: tl.constexpr,  # of heads
    SPLITS: tl.constexpr,
    PRECISION: tl.constexpr,
    DEPENDENT_LAUNCH: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Mixtures of the chosen latents."""
    if DEPENDENT_LAUNCH:
        launch_dependents()
        wait()
    split = tl.program_id(0) % SPLITS
    block = tl.program_id(0) // SPLITS % BLOCKS
    item = (tl.program_id(0) // (SPLITS * BLOCKS)).to(tl.int64)  # row and token; the grid's other axes end at 65,535
    row, token = item // tokens, item % tokens

    head = block * BLOCK_H + tl.arange(0, BLOCK_H)
    inside = head < heads
    selected += item * kept
    count = _count(selected, kept, BLOCK_K)
    own = tl.cdiv(tl.cdiv(count, BLOCK_N), SPLITS) * BLOCK_N
    begin, end = split * own, tl.minimum(split * own + own, count)

    at = query + row * query_b + token * query_t + head * query_h
    asked = _heads(at, query_e, inside, 0, L, BLOCK_L)
    asked_rotated = _heads(at, query_e, inside, L, R, BLOCK_R)
    mixed = tl.zeros((BLOCK_H, BLOCK_L), dtype=tl.float32)
    largest = tl.full((BLOCK_H,), NOTHING, dtype=tl.float32)
    total = tl.zeros((BLOCK_H,), dtype=tl.float32)

    for start in range(begin, end, BLOCK_N):
        chosen = _indices(selected, start, end, BLOCK_N)
        near = tl.maximum(chosen, 0)  # for want of an index the first entry is read, and hidden
        if PAGE > 0:
            page = tl.load(table + row * pages + near // PAGE).to(tl.int64)
            entry = entries + page * entries_n + near % PAGE * (L + R)
        else:
            entry = entries + row * entries_n + near.to(tl.int64) * (L + R)
        latent = _tile(entry, L, BLOCK_L).to(asked.dtype)
        found = _tile(entry + L, R, BLOCK_R).to(asked.dtype)
        score = tl.dot(asked, tl.trans(latent), input_precision=PRECISION)
        score = tl.dot(asked_rotated, tl.trans(found), score, input_precision=PRECISION) * scale
        score = tl.where((chosen >= 0)[None, :], score, -float("inf"))
        weight, largest, total, shrink = _softmax_step(score, largest, total)
        mixed = tl.dot(weight.to(asked.dtype), latent, mixed * shrink[:, None], input_precision=PRECISION)

    index = (split * (tl.num_programs(0) // (SPLITS * BLOCKS)).to(tl.int64) + item) * heads + head
    _store(mixed, largest, total, out, sums, index, inside, L, BLOCK_L, SPLITS)
    if SPLITS == 1:
        some = total > 0
        tl.store(sums + index, tl.where(some, largest + tl.log2(tl.where(some, total, 1.0)), 0.0), mask=inside)


def _forward(
    query_BTHE: Tensor,
    entries: Tensor,
    table_BR: Tensor | None,
    selected_BTK: Tensor,
    latent_width: int,
    scale: float,
    splits: int,
    tile: SparseTile,
) -> tuple[Tensor, Tensor, Tensor]:
    """The splits' mixtures and sums, and the tensor for the whole mixtures, which a single split has written."""
    rows, tokens, heads, width = query_BTHE.shape
    out_BTHL = query_BTHE.new_empty(rows, tokens, heads, latent_width)
    parts, sums = split_buffers(out_BTHL, splits)
    if splits == 1:
        sums = query_BTHE.new_empty(rows, tokens, heads, dtype=torch.float32)
    if not out_BTHL.numel():
        return parts, sums, out_BTHL
    head_blocks = triton.cdiv(heads, tile.block_h)
    with on_device_of(out_BTHL):
        forward_kernel[(rows * tokens * head_blocks * splits,)](
            query_BTHE,
            entries,
            selected_BTK if table_BR is None else table_BR.contiguous(),
            selected_BTK,
            parts,
            sums,
            tokens,
            heads,
            selected_BTK.shape[-1],
            0 if table_BR is None else table_BR.shape[1],
            scale * math.log2(math.e),
            *query_BTHE.stride(),
            entries.stride(0),
            PAGE=0 if table_BR is None else entries.shape[2],
            L=latent_width,
            R=width - latent_width,
            BLOCK_L=power_of_two(latent_width),
            BLOCK_R=power_of_two(width - latent_width),
            BLOCK_K=power_of_two(selected_BTK.shape[-1]),
            PRECISION=precision(query_BTHE),
            BLOCKS=head_blocks,
            SPLITS=splits,
            BLOCK_H=tile.block_h,
            BLOCK_N=tile.block_n,
            num_warps=tile.warps,
            num_stages=tile.stages,
            **dependent_launch(out_BTHL),
        )
    return parts, sums, out_BTHL


def launch_pages(
    query_BTHE: Tensor,
    entries_N1PE: Tensor,
    table_BR: Tensor,
    selected_BTK: Tensor,
    latent_width: int,
    scale: float,
) -> Tensor:
    """Mixtures [B, T, H, L] of the entries at the chosen positions."""
    rows, tokens, heads, _ = query_BTHE.shape
    tile = sparse_tile.choose_page_tile(heads, query_BTHE.element_size())
    programs = rows * tokens * triton.cdiv(heads, tile.block_h)
    splits = choose_splits(programs, selected_BTK.shape[-1], 1)
    given = (query_BTHE, entries_N1PE, table_BR, selected_BTK.contiguous(), latent_width, scale)
    parts, sums, out_BTHL = _forward(*given, splits, tile)
    with on_device_of(out_BTHL):
        combine(parts, sums, out_BTHL)
    return out_BTHL


@torch.library.custom_op("ingot::sparse_attention", mutates_args=())
def sparse_attention_forward(
    query: Tensor, entry: Tensor, selected: Tensor, latent_width: int, scale: float
) -> tuple[Tensor, Tensor]:
    """Mixtures [B, T, H, L], and log₂ of the softmaxes' sums [B, T, H]."""
    given = (query, entry.contiguous(), None, selected.contiguous(), latent_width, scale)
    tile = sparse_tile.choose_forward_tile(query.shape[2], query.element_size())
    out, sums, _ = _forward(*given, 1, tile)
    return out, sums


@torch.library.custom_op("ingot::sparse_attention_backward", mutates_args=())
def sparse_attention_backward(
    query: Tensor,
    entry: Tensor,
    selected: Tensor,
    out: Tensor,
    sums: Tensor,
    gradient: Tensor,
    latent_width: int,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """The gradients of queries and entries."""
    query, entry, selected, gradient = (x.contiguous() for x in (query, entry, selected, gradient))
    of_query, of_entry = sparse_gradients(query, entry, selected, out, sums, gradient, scale)
    return of_query, of_entry.to(entry.dtype)


@sparse_attention_forward.register_fake
def _(query: Tensor, entry: Tensor, selected: Tensor, latent_width: int, scale: float) -> tuple[Tensor, Tensor]:
    rows, tokens, heads, _ = query.shape
    return query.new_empty(rows, tokens, heads, latent_width), query.new_empty(rows, tokens, heads, dtype=torch.float32)


@sparse_attention_backward.register_fake
def _(
    query: Tensor,
    entry: Tensor,
    selected: Tensor,
    out: Tensor,
    sums: Tensor,
    gradient: Tensor,
    latent_width: int,
    scale: float,
) -> tuple[Tensor, Tensor]:
    return query.new_empty(query.shape), entry.new_empty(entry.shape)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, entry, selected, ctx.latent_width, ctx.scale = inputs
    ctx.save_for_backward(query, entry, selected, *output)


def _differentiate(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
    query, entry, selected, out, sums = ctx.saved_tensors
    given = (query, entry, selected, out, sums, gradient, ctx.latent_width, ctx.scale)
    of_query, of_entry = sparse_attention_backward(*given)
    return of_query, of_entry, None, None, None


sparse_attention_forward.register_autograd(_differentiate, setup_context=_remember)
