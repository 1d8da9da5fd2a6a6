"""Triton kernel of symmetric_product.py.

Only the tiles on and below the diagonal are computed; each is written twice, once in place and once mirrored, by the program
that computed it. tests/kernels/test_symmetric_product_cuda.py compares it with float64.

Tiles are moved by the memory unit of Hopper (TMA), which takes descriptors of tensors instead of addresses, fills with zeros what
lies outside and writes nothing there. It wants rows that begin at multiples of 16 bytes.

Shapes: N matrices; left [N, S, K], right [N, K, S], plus and the result [N, S, S].
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

TILE, DEPTH = 128, 64


@triton.jit
def _tiles(
    left,
    right,
    plus,
    out,
    depth,
    alpha,
    beta,
    HAS_PLUS: tl.constexpr,
    LEFT_TRANSPOSED: tl.constexpr,
    RIGHT_TRANSPOSED: tl.constexpr,
    TILE: tl.constexpr,
    DEPTH: tl.constexpr,
):
    matrix = tl.program_id(1)
    # program p of a matrix computes tile (row, column), row >= column, numbered along the rows: p = row(row + 1)/2 + column
    number = tl.program_id(0)
    row = ((tl.sqrt(8.0 * number + 1.0) - 1.0) * 0.5).to(tl.int32)
    row = tl.where(row * (row + 1) // 2 > number, row - 1, row)  # the root may be off by a rounding
    row = tl.where((row + 1) * (row + 2) // 2 <= number, row + 1, row)
    column = number - row * (row + 1) // 2
    below = row != column
    row *= TILE
    column *= TILE
    total = tl.zeros((TILE, TILE), dtype=tl.float32)
    for k in range(0, depth, DEPTH):
        if LEFT_TRANSPOSED:
            a = left.load([matrix, k, row]).reshape(DEPTH, TILE).T
        else:
            a = left.load([matrix, row, k]).reshape(TILE, DEPTH)
        if RIGHT_TRANSPOSED:
            b = right.load([matrix, column, k]).reshape(TILE, DEPTH).T
        else:
            b = right.load([matrix, k, column]).reshape(DEPTH, TILE)
        total = tl.dot(a, b, total)
    total *= alpha
    if HAS_PLUS:
        total += beta * plus.load([matrix, row, column]).reshape(TILE, TILE).to(tl.float32)
    result = total.to(out.dtype)
    out.store([matrix, row, column], result.reshape(1, TILE, TILE))
    if below:
        out.store([matrix, column, row], tl.trans(result).reshape(1, TILE, TILE))


def _descriptor(x: Tensor, rows: int, columns: int) -> tuple[TensorDescriptor, bool]:
    """A descriptor of x [N, R, C] in blocks, and whether x is stored transposed; any other layout is copied first."""
    transposed = x.stride(-1) != 1 and x.stride(-2) == 1
    y, block = (x.mT, [1, columns, rows]) if transposed else (x, [1, rows, columns])
    y = y if y.stride(-1) == 1 else y.contiguous()
    return TensorDescriptor(y, list(y.shape), list(y.stride()), block), transposed


def symmetric_product_triton(
    left_NSK: Tensor, right_NKS: Tensor, plus_NSS: Tensor | None, *, beta: float, alpha: float
) -> Tensor:
    """The symmetric product on a CUDA device."""
    count, size, depth = left_NSK.shape
    out = torch.empty(count, size, size, dtype=left_NSK.dtype, device=left_NSK.device)
    left, left_transposed = _descriptor(left_NSK, TILE, DEPTH)
    right, right_transposed = _descriptor(right_NKS, DEPTH, TILE)
    into, _ = _descriptor(out, TILE, TILE)
    plus = into if plus_NSS is None else _descriptor(plus_NSS.contiguous(), TILE, TILE)[0]
    side = triton.cdiv(size, TILE)
    with torch.cuda.device_of(out):
        _tiles[(side * (side + 1) // 2, count)](
            left,
            right,
            plus,
            into,
            depth,
            alpha,
            beta,
            HAS_PLUS=plus_NSS is not None,
            LEFT_TRANSPOSED=left_transposed,
            RIGHT_TRANSPOSED=right_transposed,
            TILE=TILE,
            DEPTH=DEPTH,
            num_warps=4,
            num_stages=3,
        )
    return out
