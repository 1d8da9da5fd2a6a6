"""Triton: alpha · left · right + beta · plus where the result is known to be symmetric, at half the price.

Only the tiles on and below the diagonal are computed; each is written twice, once as it is and once mirrored, by the program
that computed it. The reference is `symmetric_reference` in newton_schulz.py; tests/optim/test_muon_cuda.py compares them.

Shapes: N matrices; left [N, S, K], right [N, K, S], plus and the result [N, S, S]. Any strides; S and K of any size.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE, DEPTH = 128, 64


@triton.jit
def _tiles(
    left,
    right,
    plus,
    out,
    size,
    depth,
    alpha,
    beta,
    left_n,
    left_s,
    left_k,
    right_n,
    right_k,
    right_s,
    plus_n,
    plus_s,
    plus_t,
    HAS_PLUS: tl.constexpr,
    TILE: tl.constexpr,
    DEPTH: tl.constexpr,
):
    matrix = tl.program_id(1).to(tl.int64)
    # program p of a matrix computes tile (row, column), row >= column, numbered along the rows: p = row(row + 1)/2 + column
    number = tl.program_id(0)
    row = ((tl.sqrt(8.0 * number + 1.0) - 1.0) * 0.5).to(tl.int32)
    row = tl.where(row * (row + 1) // 2 > number, row - 1, row)  # the root may be off by a rounding
    row = tl.where((row + 1) * (row + 2) // 2 <= number, row + 1, row)
    column = number - row * (row + 1) // 2
    rows = row * TILE + tl.arange(0, TILE)
    columns = column * TILE + tl.arange(0, TILE)
    inner = tl.arange(0, DEPTH)
    left_at = left + matrix * left_n + rows[:, None].to(tl.int64) * left_s + inner[None, :] * left_k
    right_at = right + matrix * right_n + inner[:, None] * right_k + columns[None, :].to(tl.int64) * right_s
    total = tl.zeros((TILE, TILE), dtype=tl.float32)
    for start in range(0, depth, DEPTH):
        here = inner < depth - start
        a = tl.load(left_at, mask=(rows[:, None] < size) & here[None, :], other=0.0)
        b = tl.load(right_at, mask=here[:, None] & (columns[None, :] < size), other=0.0)
        total = tl.dot(a, b, total)
        left_at += DEPTH * left_k
        right_at += DEPTH * right_k
    total *= alpha
    inside = (rows[:, None] < size) & (columns[None, :] < size)
    if HAS_PLUS:
        plus_at = plus + matrix * plus_n + rows[:, None].to(tl.int64) * plus_s + columns[None, :] * plus_t
        total += beta * tl.load(plus_at, mask=inside, other=0.0).to(tl.float32)
    result = total.to(out.dtype.element_ty)
    base = out + matrix * size * size
    tl.store(base + rows[:, None].to(tl.int64) * size + columns[None, :], result, mask=inside)
    if row != column:
        mirrored = (columns[:, None] < size) & (rows[None, :] < size)
        tl.store(base + columns[:, None].to(tl.int64) * size + rows[None, :], tl.trans(result), mask=mirrored)


def symmetric_triton(
    left_NSK: Tensor, right_NKS: Tensor, plus_NSS: Tensor | None, *, beta: float, alpha: float
) -> Tensor:
    """The symmetric product on a CUDA device."""
    count, size, depth = left_NSK.shape
    out = torch.empty(count, size, size, dtype=left_NSK.dtype, device=left_NSK.device)
    side = triton.cdiv(size, TILE)
    given = out if plus_NSS is None else plus_NSS
    with torch.cuda.device(out.device):
        _tiles[(side * (side + 1) // 2, count)](
            left_NSK,
            right_NKS,
            given,
            out,
            size,
            depth,
            alpha,
            beta,
            *left_NSK.stride(),
            *right_NKS.stride(),
            *given.stride(),
            HAS_PLUS=plus_NSS is not None,
            TILE=TILE,
            DEPTH=DEPTH,
            num_warps=8,
            num_stages=3,
        )
    return out
