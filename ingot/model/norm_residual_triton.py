"""Triton: a residual sum and the norm of it, and the gradient of both, in one pass over memory each.

    forward      t = x + y                     h = norm(t)                                (norm.py; rounded where that one rounds)
    backward     ∂x = ∂y = ∂t + s·(g·∂h − t̂·mean(g·∂h·t̂))      ∂g = Σ ∂h·t̂         t̂ = t·s,  s = (mean(t²) + ε)^-½

Without y, t is x itself: what remains is the norm, and the sum of the two gradients that x gets. A compiler fuses most of this
too, but the sums over rows that ∂g needs cost it twice the time. Arithmetic is in float32, and only results are rounded. In the
backward pass a program takes every so many rows and makes one partial sum of ∂g; these are added in a fixed order, so each run
gives the same. tests/model/test_norm_residual_cuda.py compares values and gradients.

Shapes: N rows, D width, P programs.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

ROWS, STAGES = 16, 3  # of a program in the backward pass: all its rows, and those on their way
PARTIALS, COLUMNS, WARPS = 512, 16, 16  # that a program adds up at once: narrow, so that there are many of them


@triton.jit
def _forward(
    x,
    y,
    gain,
    total,
    normed,
    width,
    epsilon,
    BLOCK: tl.constexpr,
    ADDS: tl.constexpr,
    ROUNDS_FIRST: tl.constexpr,
):
    place = tl.program_id(0).to(tl.int64) * width + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < width
    dtype = x.dtype.element_ty
    value = tl.load(x + place, mask=inside, other=0.0)
    if ADDS:
        value = (value.to(tl.float32) + tl.load(y + place, mask=inside, other=0.0).to(tl.float32)).to(dtype)
        tl.store(total + place, value, mask=inside)
    value = value.to(tl.float32)
    factor = tl.load(gain + tl.arange(0, BLOCK), mask=inside, other=0.0)
    value = value * tl.rsqrt(tl.sum(value * value, axis=0) / width + epsilon)
    if ROUNDS_FIRST:
        value, factor = value.to(dtype).to(tl.float32), factor.to(dtype)
    tl.store(normed + place, (value * factor.to(tl.float32)).to(dtype), mask=inside)


@triton.jit
def _backward(
    total,
    of_total,
    of_normed,
    gain,
    out,
    partials,
    rows,
    width,
    epsilon,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    PASSES: tl.constexpr,
    ROUNDS_FIRST: tl.constexpr,
    STAGES: tl.constexpr,
):
    column = tl.arange(0, BLOCK)
    inside = column < width
    dtype = total.dtype.element_ty
    factor = tl.load(gain + column, mask=inside, other=0.0)
    if ROUNDS_FIRST:
        factor = factor.to(dtype)
    factor = factor.to(tl.float32)
    sums = tl.zeros([BLOCK], tl.float32)
    for step in tl.range(0, ROWS, num_stages=STAGES):
        row = tl.program_id(0).to(tl.int64) * ROWS + step
        place, here = row * width + column, inside & (row < rows)
        value = tl.load(total + place, mask=here, other=0.0).to(tl.float32)
        given = tl.load(of_normed + place, mask=here, other=0.0).to(tl.float32)
        square, product = tl.sum(value * value, axis=0), tl.sum(given * factor * value, axis=0)
        scale = tl.rsqrt(square / width + epsilon)
        value = value * scale
        sums += given * (value.to(dtype).to(tl.float32) if ROUNDS_FIRST else value)
        given = scale * (given * factor - value * (scale * product / width))
        if PASSES:
            given += tl.load(of_total + place, mask=here, other=0.0).to(tl.float32)
        tl.store(out + place, given.to(dtype), mask=here)
    tl.store(partials + tl.program_id(0).to(tl.int64) * width + column, sums, mask=inside)


@triton.jit
def _add_partials(partials, out, width, count, PARTIALS: tl.constexpr, COLUMNS: tl.constexpr):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    sums = tl.zeros([PARTIALS, COLUMNS], tl.float32)
    for start in range(0, count, PARTIALS):
        row = start + tl.arange(0, PARTIALS)[:, None]
        sums += tl.load(partials + row * width + column, mask=(row < count) & (column < width), other=0.0)
    total = tl.sum(sums, axis=0, keep_dims=True)
    tl.store(out + column, total.to(out.dtype.element_ty), mask=column < width)


@torch.library.custom_op("ingot::add_norm", mutates_args=())
def add_norm_forward(
    x: Tensor, y: Tensor | None, gain: Tensor, epsilon: float, rounds_first: bool
) -> tuple[Tensor, Tensor]:
    """t, of size 0 if there is no y, and h."""
    x, width = x.contiguous(), x.shape[-1]
    total, normed = _room(x, y), torch.empty_like(x)
    if x.numel():
        with torch.cuda.device_of(x):
            _forward[(x.numel() // width,)](
                x,
                x if y is None else y.contiguous(),
                gain,
                total,
                normed,
                width,
                epsilon,
                BLOCK=triton.next_power_of_2(width),
                ADDS=y is not None,
                ROUNDS_FIRST=rounds_first,
                num_warps=_warps(width),
            )
    return total, normed


@torch.library.custom_op("ingot::add_norm_backward", mutates_args=())
def add_norm_backward(
    total: Tensor, of_total: Tensor | None, of_normed: Tensor, gain: Tensor, epsilon: float, rounds_first: bool
) -> tuple[Tensor, Tensor]:
    """∂x and ∂g from ∂t, if t is used, and ∂h."""
    total, of_normed = total.contiguous(), of_normed.contiguous()
    width = total.shape[-1]
    rows, out = total.numel() // width, torch.empty_like(total)
    if not rows:
        return out, torch.zeros_like(gain)
    programs, of_gain = triton.cdiv(rows, ROWS), torch.empty_like(gain)
    partials = torch.empty(programs, width, dtype=torch.float32, device=total.device)
    with torch.cuda.device_of(total):
        _backward[(programs,)](
            total,
            total if of_total is None else of_total.contiguous(),
            of_normed,
            gain,
            out,
            partials,
            rows,
            width,
            epsilon,
            BLOCK=triton.next_power_of_2(width),
            ROWS=ROWS,
            PASSES=of_total is not None,
            ROUNDS_FIRST=rounds_first,
            STAGES=STAGES,
            num_warps=_warps(width),
        )
        _add_partials[(triton.cdiv(width, COLUMNS),)](
            partials, of_gain, width, programs, PARTIALS=PARTIALS, COLUMNS=COLUMNS, num_warps=WARPS
        )
    return out, of_gain


def _room(x: Tensor, y: Tensor | None) -> Tensor:
    return x.new_empty(0) if y is None else torch.empty_like(x)


def _warps(width: int) -> int:
    return 4 if width <= 2048 else 8


@add_norm_forward.register_fake
def _(x: Tensor, y: Tensor | None, gain: Tensor, epsilon: float, rounds_first: bool) -> tuple[Tensor, Tensor]:
    return _room(x, y), x.new_empty(x.shape)


@add_norm_backward.register_fake
def _(
    total: Tensor, of_total: Tensor | None, of_normed: Tensor, gain: Tensor, epsilon: float, rounds_first: bool
) -> tuple[Tensor, Tensor]:
    return total.new_empty(total.shape), torch.empty_like(gain)


class AddNorm(torch.autograd.Function):
    """Around the operators, because an operator cannot give back what it was given: t, where that is x."""

    @staticmethod
    def forward(
        context: Any, x: Tensor, y: Tensor | None, gain: Tensor, epsilon: float, rounds_first: bool
    ) -> tuple[Tensor, Tensor]:
        total, normed = add_norm_forward(x, y, gain, epsilon, rounds_first)
        if y is None:
            total = x.view_as(x)
        context.save_for_backward(total, gain)
        context.adds, context.rules = y is not None, (epsilon, rounds_first)
        if not torch.compiler.is_compiling():  # a compiler knows by itself what is used
            context.set_materialize_grads(False)
        return total, normed

    @staticmethod
    def backward(context: Any, of_total: Tensor | None, of_normed: Tensor | None) -> tuple[Tensor | None, ...]:
        total, gain = context.saved_tensors
        of_normed = torch.zeros_like(total) if of_normed is None else of_normed
        out, of_gain = add_norm_backward(total, of_total, of_normed, gain, *context.rules)
        return out, out if context.adds else None, of_gain, None, None
