"""Softmax attention of new tokens to a cache in pages (PagedAttention, Kwon et al., arXiv 2309.06180).

    o = Σ_p softmax_p(scale · q·k_p) v_p        over the keys p ≤ q's position that window and chunk leave

The key of position p of row b lies in page table[b, p // P mod R] at offset p mod P. The definition copies a row's pages together
and attends under a mask, on a CPU rows of about the same length together. Pages that all rows begin with (few-shot examples, a
system prompt) it reads once for all of them, as Hydragen does (Juravsky et al., arXiv 2402.05099). The kernels
(attend_paged_kernel.py) read the pages where they lie. How many programs share a row's keys depends on shapes alone, never on
what the tensors hold, so nothing waits for the device and a captured CUDA graph serves rows of any length.

Shapes: B rows, H query heads, K key and value heads, G = H/K, T new tokens, N pages, P tokens of a page, R pages of a row,
S = the keys that are read, W key width, V value width.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ingot.kernels.allow_list import understands
from ingot.kernels.attention.attend_plain import attend_plain
from ingot.kernels.attention.attention_options import AttentionOptions
from ingot.kernels.launch import dependent_launch, has_triton, on_device_of, power_of_two

OPTIONS = frozenset(("scale", "window", "chunk", "softcap", "sinks_H"))  # that the kernel understands
FUSED_OPTIONS = frozenset(("scale", "window", "chunk"))  # that torch's fused attention understands under a mask
WIDEST = 256  # of keys and values: wider tiles do not fit
MULTIPROCESSORS = 132  # of an H100 or H200; on other devices the splits are correct but not the fastest
LEAST_SHARE = 128  # keys below which a split costs more than it saves
MOST_SPLITS = 128
LEAST_SHARED = 128  # tokens that rows have in common below which they are copied with each row
MOST_QUERIES = 8  # of a row, for which all scores may exist at once
QUERIES_AT_ONCE = 128  # of a row, on a CPU
DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def attend_paged_definition(
    query_BHTW: Tensor,
    keys_NKPW: Tensor,
    values_NKPV: Tensor,
    table_BR: Tensor,
    positions_BT: Tensor,
    options: AttentionOptions,
    reach: int,
) -> Tensor:
    """Attention [B, H, T, V] over pages that are copied together; on a CPU rows of about the same length at a time."""
    if reach <= LEAST_SHARED or reach > table_BR.shape[1] * keys_NKPW.shape[2]:
        return attend_rows(query_BHTW, keys_NKPW, values_NKPV, table_BR, positions_BT, options, reach)
    rows, heads, tokens, _ = query_BHTW.shape
    out_BHTV = query_BHTW.new_empty(rows, tokens, heads, values_NKPV.shape[-1]).transpose(1, 2)
    for longest, group in rows_by_length(positions_BT, reach).items():
        some = group if len(group) < rows else slice(None)
        part = (query_BHTW[some], keys_NKPW, values_NKPV, table_BR[some], positions_BT[some], options)
        shared = shared_pages(part[3], part[4], keys_NKPW.shape[2], longest)
        if shared and understands(options, FUSED_OPTIONS):
            out_BHTV[some] = attend_shared(*part, longest, shared=shared)
        else:
            out_BHTV[some] = attend_rows(*part, longest)
    return out_BHTV


def attend_rows(
    query_BHTW: Tensor,
    keys_NKPW: Tensor,
    values_NKPV: Tensor,
    table_BR: Tensor,
    positions_BT: Tensor,
    options: AttentionOptions,
    reach: int,
) -> Tensor:
    """Attention [B, H, T, V] over a copy of all pages of the rows."""
    page, tokens = keys_NKPW.shape[2], positions_BT.shape[1]
    key, value = (read_pages(each, table_BR, reach).to(query_BHTW.dtype) for each in (keys_NKPW, values_NKPV))
    if positions_BT.device.type != "cpu" or tokens <= QUERIES_AT_ONCE or reach > table_BR.shape[1] * page:
        seen = visible_past(positions_BT, page_positions(page, table_BR, positions_BT, reach), options)
        return attend_past(query_BHTW, key, value, seen, options)
    parts = []
    for first in range(0, tokens, QUERIES_AT_ONCE):  # later keys are hidden from these queries: do not multiply them
        part_BT = positions_BT[:, first : first + QUERIES_AT_ONCE]
        end = int(part_BT.max()) + 1
        seen = visible_past(part_BT, torch.arange(end)[None], options)
        query = query_BHTW[:, :, first : first + QUERIES_AT_ONCE]
        parts.append(attend_past(query, key[:, :, :end], value[:, :, :end], seen, options))
    return torch.cat(parts, dim=2)


def rows_by_length(positions_BT: Tensor, reach: int) -> dict[int, list[int]]:
    """Rows of about the same length, by the reach of the longest of them: a short one is not padded to the longest of all.

    On a GPU all rows are one group: to look at their lengths would wait for the device.
    """
    if positions_BT.device.type != "cpu":
        return {reach: list(range(len(positions_BT)))}
    ends = (positions_BT.amax(dim=1) + 1).tolist()
    groups: dict[int, list[int]] = {}
    for row, end in enumerate(ends):
        groups.setdefault(max(LEAST_SHARED, 1 << (end - 1).bit_length()), []).append(row)
    return {max(ends[row] for row in group): group for group in groups.values()}


def shared_pages(table_BR: Tensor, positions_BT: Tensor, page: int, reach: int) -> int:
    """How many pages all rows begin with, if it pays to read them once for all."""
    rows, tokens = positions_BT.shape
    if rows == 1 or tokens > MOST_QUERIES or reach < LEAST_SHARED or reach > table_BR.shape[1] * page:
        return 0
    whole = (reach - 1) // page  # the newest key is in a page of its row
    differs_R = (table_BR[:, :whole] != table_BR[0, :whole]).any(dim=0)
    shared = int(differs_R.int().argmax()) if differs_R.any() else whole
    return shared if shared * page >= LEAST_SHARED else 0


def attend_shared(
    query_BHTW: Tensor,
    keys_NKPW: Tensor,
    values_NKPV: Tensor,
    table_BR: Tensor,
    positions_BT: Tensor,
    options: AttentionOptions,
    reach: int,
    *,
    shared: int,
) -> Tensor:
    """Attention [B, H, T, V] of rows whose first `shared` pages are the same ones: one product for the queries of all rows."""
    dtype, rows, key_heads = query_BHTW.dtype, len(query_BHTW), keys_NKPW.shape[1]
    split = shared * keys_NKPW.shape[2]
    first_KSW, first_KSV = (read_pages(each, table_BR[:1], split)[0].to(dtype) for each in (keys_NKPW, values_NKPV))
    rest_BKSW, rest_BKSV = (
        read_pages(each, table_BR[:, shared:], reach - split).to(dtype) for each in (keys_NKPW, values_NKPV)
    )
    group = query_BHTW.shape[1] // key_heads
    query_BKQW = query_BHTW.unflatten(1, (-1, group)).flatten(2, 3)  # Q = G T queries of a row share a key head

    def together(x_BKQC: Tensor) -> Tensor:
        return x_BKQC.transpose(0, 1).flatten(1, 2)

    def apart(x_KQC: Tensor) -> Tensor:
        return x_KQC.unflatten(1, (rows, -1)).transpose(0, 1)

    scores_BKQS = torch.cat((apart(together(query_BKQW) @ first_KSW.mT), query_BKQW @ rest_BKSW.mT), dim=-1)
    seen_B1TS = visible_past(positions_BT, page_positions(keys_NKPW.shape[2], table_BR, positions_BT, reach), options)
    hidden_B1QS = ~seen_B1TS.repeat(1, 1, group, 1)
    scores_BKQS = scores_BKQS.to(torch.promote_types(dtype, torch.float32)) * options.scale
    weights_BKQS = scores_BKQS.masked_fill(hidden_B1QS, -torch.inf).softmax(dim=-1).to(dtype)
    mixed_BKQV = apart(together(weights_BKQS[..., :split]) @ first_KSV) + weights_BKQS[..., split:] @ rest_BKSV
    return mixed_BKQV.unflatten(2, (group, -1)).flatten(1, 2)


def read_pages(stream_NKPW: Tensor, table_BR: Tensor, reach: int) -> Tensor:
    """A copy of the rows' entries [B, K, S, W]: S is the reach, and index = position; or a whole ring of pages."""
    heads, page, width = stream_NKPW.shape[1:]
    pages = table_BR.shape[1]
    needed_BR = table_BR[:, : min(-(-reach // page), pages)]
    # by page and head at once: a copy of whole pages would need a second one to bring each head's keys together
    index_BKR = needed_BR[:, None] * heads + torch.arange(heads, device=table_BR.device)[:, None]
    entries = stream_NKPW.reshape(-1, page * width).index_select(0, index_BKR.flatten())
    entries_BKSW = entries.view(len(table_BR), heads, -1, width)
    return entries_BKSW if reach > pages * page else entries_BKSW[:, :, :reach]


def page_positions(page: int, table_BR: Tensor, positions_BT: Tensor, reach: int) -> Tensor:
    """The positions [B or 1, S] of what `read_pages` gives; negative where a ring has never been written."""
    length = table_BR.shape[1] * page
    if reach <= length:
        return torch.arange(reach, device=positions_BT.device)[None]
    # padding counts: it is not in the ring, but what lies in its slot is too old for any query to see
    last_B1 = positions_BT[:, :1] + positions_BT.shape[1] - 1
    return last_B1 - (last_B1 - torch.arange(length, device=positions_BT.device)) % length


def visible_past(positions_BT: Tensor, keys_BS: Tensor, options: AttentionOptions) -> Tensor:
    """Whether queries at `positions_BT` see keys at positions `keys_BS`: booleans [B, 1, T, S]."""
    query, key = positions_BT[:, None, :, None], keys_BS[:, None, None, :]
    visible = (key <= query) & (key >= 0)
    if options.window is not None:
        visible = visible & (query - key < options.window)
    if options.chunk is not None:
        visible = visible & (key >= query - query % options.chunk)
    return visible


def attend_past(
    query_BHTW: Tensor, key_BKSW: Tensor, value_BKSV: Tensor, visible_B1TS: Tensor, options: AttentionOptions
) -> Tensor:
    """Attention [B, H, T, V] under a mask: by torch's fused attention where that understands the options."""
    if not understands(options, FUSED_OPTIONS):
        return attend_plain(query_BHTW, key_BKSW, value_BKSV, visible_B1TS, options)
    group, scale = query_BHTW.shape[1] // key_BKSW.shape[1], options.scale
    if group == 1:
        return scaled_dot_product_attention(query_BHTW, key_BKSW, value_BKSV, visible_B1TS, scale=scale)
    # the queries of a group become rows of one longer query: torch has no fused kernel for masks with grouped heads on a GPU,
    # and on a CPU reads the keys of a group again for each of its heads
    rows = query_BHTW.unflatten(1, (-1, group)).flatten(2, 3)
    mixed = scaled_dot_product_attention(rows, key_BKSW, value_BKSV, visible_B1TS.repeat(1, 1, group, 1), scale=scale)
    return mixed.unflatten(2, (group, -1)).flatten(1, 2)


def kernel_allowed(query_BHTW: Tensor, keys_NKPW: Tensor, values_NKPV: Tensor, options: AttentionOptions) -> bool:
    """Whether the kernel can run: CUDA, at most 32 bits, heads of at most WIDEST channels, and OPTIONS."""
    return (
        query_BHTW.is_cuda
        and query_BHTW.dtype in DTYPES
        and keys_NKPW.dtype in DTYPES
        and max(keys_NKPW.shape[-1], values_NKPV.shape[-1]) <= WIDEST
        and understands(options, OPTIONS)
        and has_triton()
    )


def attend_paged(
    query_BHTW: Tensor,
    keys_NKPW: Tensor,
    values_NKPV: Tensor,
    table_BR: Tensor,
    positions_BT: Tensor,
    options: AttentionOptions,
    reach: int,
) -> Tensor:
    """Attention [B, H, T, V] of new tokens to themselves and their past, which have been written to the pages.

    Every position is below `reach`; the kernel does not need to know it.
    """
    if not kernel_allowed(query_BHTW, keys_NKPW, values_NKPV, options):
        return attend_paged_definition(query_BHTW, keys_NKPW, values_NKPV, table_BR, positions_BT, options, reach)
    return launch(query_BHTW, keys_NKPW, values_NKPV, table_BR, positions_BT, options)


class PageTile(NamedTuple):
    """Sizes of one program."""

    block_m: int  # queries
    block_n: int  # keys read at a time
    warps: int
    stages: int  # of the pipeline, every two of which are a block of keys on its way: first its table, then itself
    resident: int  # programs that fit on a multiprocessor


def launch(
    query_BHTW: Tensor,
    keys_NKPW: Tensor,
    values_NKPV: Tensor,
    table_BR: Tensor,
    positions_BT: Tensor,
    options: AttentionOptions,
) -> Tensor:
    """Attention [B, H, T, V], in memory ordered as [B, T, H, V], by the kernels."""
    from ingot.kernels.attention.attend_paged_kernel import attend_kernel

    window, chunk, softcap, sinks_H = options.window, options.chunk, options.softcap, options.sinks_H
    rows, heads, tokens, width = query_BHTW.shape
    _, key_heads, page, value_width = values_NKPV.shape
    group, pages = heads // key_heads, table_BR.shape[1]
    tile = choose_tile(tokens * group, max(width, value_width), query_BHTW.element_size())
    blocks = -(-tokens * group // tile.block_m)
    splits = choose_splits(rows * key_heads * blocks, pages * page, tile.resident)
    out_BTHV = query_BHTW.new_empty(rows, tokens, heads, value_width)
    parts, sums = split_buffers(out_BTHV, splits)
    with on_device_of(out_BTHV):
        attend_kernel[(blocks * splits, key_heads, rows)](
            query_BHTW,
            keys_NKPW,
            values_NKPV,
            table_BR.contiguous(),
            positions_BT.contiguous(),
            out_BTHV if sinks_H is None else sinks_H,
            parts,
            sums,
            tokens,
            heads,
            pages,
            options.scale * math.log2(math.e),
            softcap or 0.0,
            window or 0,
            chunk or 0,
            *query_BHTW.stride(),
            *keys_NKPW.stride()[:2],
            *values_NKPV.stride()[:2],
            G=group,
            PAGE=page,
            W=width,
            V=value_width,
            BLOCK_W=power_of_two(width),
            BLOCK_V=power_of_two(value_width),
            HAS_WINDOW=window is not None,
            HAS_CHUNK=chunk is not None,
            HAS_SOFTCAP=softcap is not None,
            HAS_SINKS=sinks_H is not None,
            SPLITS=splits,
            PRECISION=precision(query_BHTW),
            BLOCK_M=tile.block_m,
            BLOCK_N=tile.block_n,
            num_warps=tile.warps,
            num_stages=tile.stages,
            **dependent_launch(out_BTHV),
        )
        combine(parts, sums, out_BTHV)
    return out_BTHV.transpose(1, 2)


def choose_tile(queries: int, width: int, bytes_per_number: int) -> PageTile:
    """For `queries` of a sequence that share their keys."""
    if bytes_per_number == 4:  # no tensor cores: small tiles
        return PageTile(16, 32 if width <= 128 else 16, warps=4, stages=3, resident=4)
    if queries <= 16 and width <= 64:
        return PageTile(16, 64, warps=2, stages=5, resident=6)
    if queries <= 16:
        return PageTile(16, 64 if width <= 128 else 32, warps=4, stages=5, resident=3)
    if queries <= 64:
        return PageTile(32 if queries <= 32 else 64, 64 if width <= 128 else 32, warps=4, stages=5, resident=2)
    return PageTile(128, 64, warps=8, stages=5 if width <= 128 else 2, resident=2 if width <= 64 else 1)


def choose_splits(programs: int, keys: int, resident: int) -> int:
    """Into how many shares the keys of a row, at most `keys`, are split to keep the device busy."""
    return max(1, min(MULTIPROCESSORS * resident // programs, keys // LEAST_SHARE, MOST_SPLITS))


def split_buffers(out: Tensor, splits: int) -> tuple[Tensor, Tensor]:
    """Buffers for the splits' mixtures [splits, …] and the sums of their weights, in float32; a single split writes to `out`."""
    if splits == 1:
        return out, out
    shape = (splits, *out.shape)
    return out.new_empty(shape, dtype=torch.float32), out.new_empty(shape[:-1], dtype=torch.float32)


def combine(parts: Tensor, sums: Tensor, out: Tensor) -> None:
    """Add up the splits' mixtures, weighted by their sums, into `out`."""
    from ingot.kernels.attention.attend_paged_kernel import combine_kernel

    if parts is out:
        return
    splits, width = len(parts), out.shape[-1]
    block_s = 1 << (splits - 1).bit_length()
    combine_kernel[(out.numel() // width,)](
        parts,
        sums,
        out,
        V=width,
        BLOCK_V=power_of_two(width),
        SPLITS=splits,
        BLOCK_S=block_s,
        SOME=min(block_s, 8),
        num_warps=1 if width <= 64 else 4,
        **dependent_launch(out),
    )


def precision(query: Tensor) -> str:
    """The precision of tensor cores: float32 is not rounded to 10 bits."""
    return "ieee" if query.dtype == torch.float32 else "tf32"
