"""Softmax attention over pages on a CUDA device, for decoding and for pieces of prompts alike.

    o = Σ_p softmax_p(scale · q·k_p) v_p        over the keys p ≤ q's position that window and chunk leave

The key of position p of row b lies in page table[b, p // P mod R] at offset p mod P. The kernels (attend_paged_kernels.py)
read the pages where they lie. How many programs share a row's keys depends on shapes alone, never on what the tensors hold, so
nothing waits for the device and a captured graph (torch.cuda.graph) serves rows of any length.

The reference is attend_plain.py on gathered keys; tests/model/mixers/test_attend_paged_triton.py compares them in Triton's
interpreter, test_attend_paged_cuda.py on a device. Triton is imported at the first call: this file can be read without it.

Shapes: B rows, H query heads, K key and value heads, G = H/K, T new tokens, N pages, P tokens of a page, R pages of a row,
W key width, V value width.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

from ingot.model.early import early

WIDEST = 256  # of keys and values: wider tiles do not fit
MULTIPROCESSORS = 132  # of an H100 or H200; elsewhere the splits are merely not the best
LEAST_SHARE = 128  # keys below which a split costs more than it saves
MOST_SPLITS = 128
DTYPES = (torch.bfloat16, torch.float16, torch.float32)


class Tile(NamedTuple):
    """How one program works."""

    block_m: int  # queries
    block_n: int  # keys read at a time
    warps: int
    stages: int  # of the pipeline, every two of which are a block of keys on its way: first its table, then itself
    resident: int  # programs that a multiprocessor has room for


def triton_can(query_BHTW: Tensor, keys_NKPW: Tensor, values_NKPV: Tensor) -> bool:
    """Whether `attend_paged_triton` takes tensors like these."""
    return (
        query_BHTW.is_cuda
        and query_BHTW.dtype in DTYPES
        and keys_NKPW.dtype in DTYPES
        and max(keys_NKPW.shape[-1], values_NKPV.shape[-1]) <= WIDEST
        and has_triton()
    )


@cache
def has_triton() -> bool:
    """Whether Triton is installed."""
    return find_spec("triton") is not None


def attend_paged_triton(
    query_BHTW: Tensor,
    keys_NKPW: Tensor,
    values_NKPV: Tensor,
    table_BR: Tensor,
    positions_BT: Tensor,
    *,
    scale: float,
    window: int | None = None,
    chunk: int | None = None,
    softcap: float | None = None,
    sinks_H: Tensor | None = None,
) -> Tensor:
    """Attention [B, H, T, V], in memory ordered as [B, T, H, V]; keys up to each query's own position have been written."""
    from ingot.model.mixers.attend_paged_kernels import attend_kernel

    rows, heads, tokens, width = query_BHTW.shape
    _, key_heads, page, value_width = values_NKPV.shape
    group, pages = heads // key_heads, table_BR.shape[1]
    tile = choose_tile(tokens * group, max(width, value_width), query_BHTW.element_size())
    blocks = -(-tokens * group // tile.block_m)
    splits = choose_splits(rows * key_heads * blocks, pages * page, tile.resident)
    out_BTHV = query_BHTW.new_empty(rows, tokens, heads, value_width)
    parts, sums = room_for_splits(out_BTHV, splits)
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
            scale * math.log2(math.e),
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
            **early(out_BTHV),
        )
        combine(parts, sums, out_BTHV)
    return out_BTHV.transpose(1, 2)


def choose_tile(queries: int, width: int, bytes_per_number: int) -> Tile:
    """For `queries` of a sequence that share their keys."""
    if bytes_per_number == 4:  # no tensor cores: small tiles
        return Tile(16, 32 if width <= 128 else 16, warps=4, stages=3, resident=4)
    if queries <= 16 and width <= 64:
        return Tile(16, 64, warps=2, stages=5, resident=6)
    if queries <= 16:
        return Tile(16, 64 if width <= 128 else 32, warps=4, stages=5, resident=3)
    if queries <= 64:
        return Tile(32 if queries <= 32 else 64, 64 if width <= 128 else 32, warps=4, stages=5, resident=2)
    return Tile(128, 64, warps=8, stages=5 if width <= 128 else 2, resident=2 if width <= 64 else 1)


def choose_splits(programs: int, keys: int, resident: int) -> int:
    """Into how many shares the keys of a row, at most `keys`, are split to keep the device busy."""
    return max(1, min(MULTIPROCESSORS * resident // programs, keys // LEAST_SHARE, MOST_SPLITS))


def room_for_splits(out: Tensor, splits: int) -> tuple[Tensor, Tensor]:
    """Where the splits leave their mixtures [splits, …] and the sums of their weights, in float32; one split writes `out`."""
    if splits == 1:
        return out, out
    shape = (splits, *out.shape)
    return out.new_empty(shape, dtype=torch.float32), out.new_empty(shape[:-1], dtype=torch.float32)


def combine(parts: Tensor, sums: Tensor, out: Tensor) -> None:
    """Mix what the splits left, weighted by their sums, into `out`."""
    from ingot.model.mixers.attend_paged_kernels import combine_kernel

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
        **early(out),
    )


def power_of_two(width: int) -> int:
    """The side of a tile that holds `width`: tensor cores take 16 at least."""
    return max(16, 1 << (width - 1).bit_length())


def precision(query: Tensor) -> str:
    """How tensor cores multiply: float32 is not to be rounded to 10 bits."""
    return "ieee" if query.dtype == torch.float32 else "tf32"


def on_device_of(tensor: Tensor) -> AbstractContextManager[object]:
    """Kernels are launched on the tensor's device, which need not be the current one."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()
