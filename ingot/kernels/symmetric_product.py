"""Matrix products with a symmetric result at half the cost: alpha · left · right + beta · plus.

Only blocks on and below the diagonal are computed, then mirrored; on CUDA one kernel does both.

Shapes: N matrices; left [N, S, K], right [N, K, S], plus and the result [N, S, S].
"""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 512  # rows of a block of the definition
KERNEL_ROWS = 512  # from here on the kernel is faster than the whole product
ALIGNED = 16  # bytes: where rows begin, for the kernel's descriptors


def symmetric_product(
    left: Tensor, right: Tensor, plus: Tensor | None = None, *, beta: float = 0.0, alpha: float = 1.0
) -> Tensor:
    """alpha · left · right + beta · plus."""
    if kernel_allowed(left):
        from ingot.kernels.symmetric_product_kernel import symmetric_product_triton

        return symmetric_product_triton(left, right, plus, beta=beta, alpha=alpha)
    return symmetric_product_definition(left, right, plus, beta=beta, alpha=alpha)


def symmetric_product_definition(
    left: Tensor, right: Tensor, plus: Tensor | None, *, beta: float, alpha: float
) -> Tensor:
    """By blocks of rows: each is multiplied up to the diagonal, and what lies below is copied above."""
    count, size, _ = left.shape
    out = torch.empty(count, size, size, dtype=left.dtype, device=left.device)
    block = BLOCK if size >= 2 * BLOCK else size
    for start in range(0, size, block):
        rows, end = slice(start, start + block), min(start + block, size)
        given = out if plus is None else plus
        torch.baddbmm(
            given[:, rows, :end],
            left[:, rows],
            right[:, :, :end],
            beta=0.0 if plus is None else beta,
            alpha=alpha,
            out=out[:, rows, :end],
        )
        out[:, :start, rows] = out[:, rows, :start].mT
    return out


def kernel_allowed(left: Tensor) -> bool:
    """Whether the kernel can run: float16 on CUDA (TMA of Hopper), sizes that descriptors can name, and large matrices."""
    step = ALIGNED // left.element_size()
    aligned = left.shape[-1] % step == 0 and left.shape[-2] % step == 0
    return left.is_cuda and left.dtype == torch.float16 and left.shape[1] >= KERNEL_ROWS and aligned
