"""Triton kernel of `cast_both` in float8.py: both results in one pass over the tensor.

A product in float8 wants the dimension it sums over to be the last one of both factors. Training sums over every dimension of
every factor once, so each is needed both ways; reading the tensor once for both is half of the traffic.

tests/kernels/test_float8_cuda.py compares it with the definition bit by bit.

Shapes: M rows, K columns.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE_ROWS, TILE_COLUMNS = 64, 64


@triton.jit
def _cast_tile(
    x,
    scale,
    out,
    transposed,
    rows,
    columns,
    stride_row,
    stride_column,
    LIMIT: tl.constexpr,
    TILE_ROWS: tl.constexpr,
    TILE_COLUMNS: tl.constexpr,
):
    column = tl.program_id(0) * TILE_COLUMNS + tl.arange(0, TILE_COLUMNS)
    row = tl.program_id(1) * TILE_ROWS + tl.arange(0, TILE_ROWS)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    long_row, long_column = row.to(tl.int64), column.to(tl.int64)
    value = tl.load(x + long_row[:, None] * stride_row + long_column[None, :] * stride_column, mask=inside, other=0.0)
    value = value.to(tl.float32) * tl.div_rn(1.0, tl.load(scale))  # dividing every value would take most of the time
    cast = tl.clamp(value, -LIMIT, LIMIT).to(out.dtype.element_ty)
    tl.store(out + long_row[:, None] * columns + column[None, :], cast, mask=inside)
    inside_transposed = (column[:, None] < columns) & (row[None, :] < rows)
    tl.store(transposed + long_column[:, None] * rows + row[None, :], tl.trans(cast), mask=inside_transposed)


@torch.library.custom_op("ingot::cast_both", mutates_args=())
def cast_both_triton(x_MK: Tensor, scale: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """x / scale in `dtype` [M, K], and its transpose [K, M], both contiguous."""
    rows, columns = x_MK.shape
    out = torch.empty(rows, columns, dtype=dtype, device=x_MK.device)
    transposed = torch.empty(columns, rows, dtype=dtype, device=x_MK.device)
    with torch.cuda.device(x_MK.device):
        _cast_tile[(triton.cdiv(columns, TILE_COLUMNS), triton.cdiv(rows, TILE_ROWS))](
            x_MK,
            scale,
            out,
            transposed,
            rows,
            columns,
            x_MK.stride(0),
            x_MK.stride(1),
            LIMIT=torch.finfo(dtype).max,
            TILE_ROWS=TILE_ROWS,
            TILE_COLUMNS=TILE_COLUMNS,
            num_warps=8,
        )
    return out, transposed


@cast_both_triton.register_fake
def _(x_MK: Tensor, scale: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    rows, columns = x_MK.shape
    return x_MK.new_empty(rows, columns, dtype=dtype), x_MK.new_empty(columns, rows, dtype=dtype)
