"""Triton kernel of rms_norm.py, and its launch. A program takes one row. Without y, t is x itself and is not written.

Shapes: N rows, D width.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ingot.kernels.launch import dependent_launch, on_device_of
from ingot.kernels.launch_kernel import launch_dependents, wait


@triton.jit
def norm_kernel(
    x,
    y,
    gain,
    total,
    normed,
    width,
    epsilon,
    BLOCK: tl.constexpr,
    ADDS: tl.constexpr,
    ROUND_FIRST: tl.constexpr,
    DEPENDENT_LAUNCH: tl.constexpr,
):
    if DEPENDENT_LAUNCH:
        launch_dependents()
        wait()
    index = tl.program_id(0).to(tl.int64) * width + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < width
    dtype = x.dtype.element_ty
    value = tl.load(x + index, mask=inside, other=0.0)
    if ADDS:
        value = (value.to(tl.float32) + tl.load(y + index, mask=inside, other=0.0).to(tl.float32)).to(dtype)
        tl.store(total + index, value, mask=inside)
    value = value.to(tl.float32)
    factor = tl.load(gain + tl.arange(0, BLOCK), mask=inside, other=0.0)
    value = value * tl.rsqrt(tl.sum(value * value, axis=0) / width + epsilon)
    if ROUND_FIRST:
        value, factor = value.to(dtype).to(tl.float32), factor.to(dtype)
    tl.store(normed + index, (value * factor.to(tl.float32)).to(dtype), mask=inside)


def launch(x: Tensor, y: Tensor | None, gain: Tensor, epsilon: float, round_first: bool) -> tuple[Tensor, Tensor]:
    """t and the norm of it."""
    x, width = x.contiguous(), x.shape[-1]
    total, normed = x if y is None else torch.empty_like(x), torch.empty_like(x)
    if x.numel():
        with on_device_of(x):
            norm_kernel[(x.numel() // width,)](
                x,
                x if y is None else y.contiguous(),
                gain,
                total,
                normed,
                width,
                epsilon,
                BLOCK=triton.next_power_of_2(width),
                ADDS=y is not None,
                ROUND_FIRST=round_first,
                num_warps=4 if width <= 2048 else 8,
                **dependent_launch(x),
            )
    return total, normed
