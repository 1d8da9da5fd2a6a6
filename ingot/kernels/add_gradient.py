"""Adds a 16-bit gradient to a float32 total.

torch adds tensors of two dtypes one number at a time, at half of the memory's speed; the kernel reads and writes in one pass.
"""

from __future__ import annotations

import torch
from torch import Tensor


def add_gradient(total: Tensor | None, part: Tensor, dtype: torch.dtype) -> Tensor:
    """total + part in place, or `part` in `dtype` where there is no total yet."""
    if kernel_allowed(total, part, dtype):
        from ingot.kernels.add_gradient_kernel import add_gradient_triton

        return add_gradient_triton(total, part, dtype)
    return part.to(dtype) if total is None else total.add_(part)


def kernel_allowed(total: Tensor | None, part: Tensor, dtype: torch.dtype) -> bool:
    """What the kernel takes."""
    if not (part.is_cuda and part.dtype in (torch.bfloat16, torch.float16) and dtype == torch.float32):
        return False
    return total is None or (total.dtype == torch.float32 and total.is_contiguous() and total.shape == part.shape)
