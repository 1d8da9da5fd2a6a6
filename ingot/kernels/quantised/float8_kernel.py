"""Triton kernels of `cast_both` and `cast_rows` in float8.py: both results of a cast in one pass over the tensor.

A product in float8 wants the dimension it sums over to be the last one of both factors. Training sums over every dimension of
every factor once, so each is needed both ways; reading the tensor once for both is half of the traffic.

Sampling needs each row and its scale. A program of `cast_rows` has a row in its registers: it reads it, finds the largest value
and writes the cast. For a few rows, as in a step of decoding, the time is that of a launch, and one is all there is.

tests/kernels/test_float8_cuda.py and test_float8_rows.py compare them with the definitions bit by bit.

Shapes: M rows, K columns.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ingot.kernels.launch import dependent_launch, on_device_of
from ingot.kernels.launch_kernel import launch_dependents, wait

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


@triton.jit
def _cast_row(
    x,
    out,
    scales,
    width,
    LIMIT: tl.constexpr,
    SMALLEST: tl.constexpr,
    BLOCK: tl.constexpr,
    DEPENDENT_LAUNCH: tl.constexpr,
):
    if DEPENDENT_LAUNCH:
        launch_dependents()
        wait()
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < width
    value = tl.load(x + row * width + column, mask=inside, other=0.0).to(tl.float32)
    size = value.to(tl.int32, bitcast=True) & 0x7FFFFFFF  # |value|: the integers have its order, and NaN is the largest
    largest = tl.max(size, axis=0).to(tl.float32, bitcast=True)
    scale = largest * (1.0 / LIMIT)
    scale = tl.where(scale < SMALLEST, SMALLEST, scale)  # NaN stays, as in the definition
    value = value * tl.div_rn(1.0, scale)
    tl.store(out + row * width + column, tl.clamp(value, -LIMIT, LIMIT).to(out.dtype.element_ty), mask=inside)
    tl.store(scales + row, scale)


def launch_cast_rows(x_MK: Tensor, dtype: torch.dtype, smallest: float) -> tuple[Tensor, Tensor]:
    """x / scale in `dtype` [M, K], and the scale of each row [M, 1], which is at least `smallest`."""
    x_MK = x_MK.contiguous()
    rows, width = x_MK.shape
    out = torch.empty(rows, width, dtype=dtype, device=x_MK.device)
    scales = torch.empty(rows, 1, dtype=torch.float32, device=x_MK.device)
    if x_MK.numel():
        with on_device_of(x_MK):
            _cast_row[(rows,)](
                x_MK,
                out,
                scales,
                width,
                LIMIT=torch.finfo(dtype).max,
                SMALLEST=smallest,
                BLOCK=triton.next_power_of_2(width),
                num_warps=4 if width <= 2048 else 8 if width <= 8192 else 16,
                **dependent_launch(x_MK),
            )
    return out, scales
