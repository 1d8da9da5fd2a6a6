"""Triton kernel of add_gradient.py, one pass over memory. tests/kernels/test_add_gradient_cuda.py compares the two."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096


@triton.jit
def _add(total, part, size, FIRST: tl.constexpr, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < size
    value = tl.load(part + index, mask=inside, other=0.0).to(total.dtype.element_ty)
    if not FIRST:
        value += tl.load(total + index, mask=inside, other=0.0)
    tl.store(total + index, value, mask=inside)


def add_gradient_triton(total: Tensor | None, part: Tensor, dtype: torch.dtype) -> Tensor:
    """`add_gradient` on a CUDA device."""
    first = total is None
    part = part.contiguous()
    out = torch.empty(part.shape, dtype=dtype, device=part.device) if total is None else total
    assert out.is_contiguous()
    if out.numel():
        with torch.cuda.device(out.device):
            _add[(triton.cdiv(out.numel(), BLOCK),)](out, part, out.numel(), FIRST=first, BLOCK=BLOCK, num_warps=8)
    return out
