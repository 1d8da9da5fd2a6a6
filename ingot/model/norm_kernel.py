"""The kernel of norm_triton.py. One program is one row."""

from __future__ import annotations

import triton
import triton.language as tl

from ingot.model.early_kernel import begin_early, wait


@triton.jit
def add_norm_kernel(
    x,
    y,
    gain,
    total,
    normed,
    width,
    epsilon,
    BLOCK: tl.constexpr,
    ADD: tl.constexpr,
    GAIN_AFTER_CAST: tl.constexpr,
    EARLY: tl.constexpr,
):
    if EARLY:
        begin_early()
        wait()
    row = tl.program_id(0).to(tl.int64) * width
    column = tl.arange(0, BLOCK)
    inside = column < width
    dtype = x.dtype.element_ty
    value = tl.load(x + row + column, mask=inside, other=0.0)
    if ADD:
        value = (value.to(tl.float32) + tl.load(y + row + column, mask=inside, other=0.0).to(tl.float32)).to(dtype)
        tl.store(total + row + column, value, mask=inside)
    value = value.to(tl.float32)
    factor = tl.load(gain + column, mask=inside, other=0.0)
    value = value * tl.rsqrt(tl.sum(value * value, axis=0) / width + epsilon)
    if GAIN_AFTER_CAST:
        out = value.to(dtype) * factor.to(dtype)
    else:
        out = (value * factor.to(tl.float32)).to(dtype)
    tl.store(normed + row + column, out, mask=inside)
