"""Triton kernels of rms_norm.py, and their launch. A program takes one row, in the backward pass ROWS rows.

Without y, t is x itself and is not written. Compiled code and code that wants gradients call operators (`ingot::add_rms_norm`);
in decoding the kernel is launched directly, before the kernel ahead of it has ended (launch.py).

Shapes: N rows, D width, P programs.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ingot.kernels.launch import dependent_launch, on_device_of
from ingot.kernels.launch_kernel import launch_dependents, wait

ROWS, STAGES = 16, 3  # of a program in the backward pass: all its rows, and those in flight
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
    ROUND_FIRST: tl.constexpr,
    STAGES: tl.constexpr,
):
    column = tl.arange(0, BLOCK)
    inside = column < width
    dtype = total.dtype.element_ty
    factor = tl.load(gain + column, mask=inside, other=0.0)
    if ROUND_FIRST:
        factor = factor.to(dtype)
    factor = factor.to(tl.float32)
    sums = tl.zeros([BLOCK], tl.float32)
    for step in tl.range(0, ROWS, num_stages=STAGES):
        row = tl.program_id(0).to(tl.int64) * ROWS + step
        index, here = row * width + column, inside & (row < rows)
        value = tl.load(total + index, mask=here, other=0.0).to(tl.float32)
        given = tl.load(of_normed + index, mask=here, other=0.0).to(tl.float32)
        square, product = tl.sum(value * value, axis=0), tl.sum(given * factor * value, axis=0)
        scale = tl.rsqrt(square / width + epsilon)
        value = value * scale
        sums += given * (value.to(dtype).to(tl.float32) if ROUND_FIRST else value)
        given = scale * (given * factor - value * (scale * product / width))
        if PASSES:
            given += tl.load(of_total + index, mask=here, other=0.0).to(tl.float32)
        tl.store(out + index, given.to(dtype), mask=here)
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


def run(x: Tensor, gain: Tensor, epsilon: float, round_first: bool) -> Tensor:
    """The norm of x."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return rms_norm_forward(x, gain, epsilon, round_first)
    return _launch(x, None, gain, epsilon, round_first, dependent_launch(x))[1]


def run_add(x: Tensor, y: Tensor, gain: Tensor, epsilon: float, round_first: bool) -> tuple[Tensor, Tensor]:
    """The sum and its norm."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return add_rms_norm_forward(x, y, gain, epsilon, round_first)
    return _launch(x, y, gain, epsilon, round_first, dependent_launch(x))


def _launch(
    x: Tensor, y: Tensor | None, gain: Tensor, epsilon: float, round_first: bool, options: dict[str, bool]
) -> tuple[Tensor, Tensor]:
    x, width = x.contiguous(), x.shape[-1]
    total, normed = x if y is None else torch.empty_like(x), torch.empty_like(x)
    if x.numel():
        with on_device_of(x):
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
                ROUND_FIRST=round_first,
                num_warps=_warps(width),
                **options,
            )
    return total, normed


@torch.library.custom_op("ingot::rms_norm", mutates_args=())
def rms_norm_forward(x: Tensor, gain: Tensor, epsilon: float, round_first: bool) -> Tensor:
    """The norm of x, with a gradient."""
    return _launch(x, None, gain, epsilon, round_first, {"DEPENDENT_LAUNCH": False})[1]


@torch.library.custom_op("ingot::add_rms_norm", mutates_args=())
def add_rms_norm_forward(
    x: Tensor, y: Tensor, gain: Tensor, epsilon: float, round_first: bool
) -> tuple[Tensor, Tensor]:
    """The sum and its norm, with gradients."""
    return _launch(x, y, gain, epsilon, round_first, {"DEPENDENT_LAUNCH": False})


@torch.library.custom_op("ingot::rms_norm_backward", mutates_args=())
def rms_norm_backward(
    total: Tensor, of_total: Tensor | None, of_normed: Tensor, gain: Tensor, epsilon: float, round_first: bool
) -> tuple[Tensor, Tensor]:
    """∂x and ∂g from ∂t, if t is used, and ∂h."""
    total, of_normed = total.contiguous(), of_normed.contiguous()
    width = total.shape[-1]
    rows, out = total.numel() // width, torch.empty_like(total)
    if not rows:
        return out, torch.zeros_like(gain)
    programs, of_gain = triton.cdiv(rows, ROWS), torch.empty_like(gain)
    partials = torch.empty(programs, width, dtype=torch.float32, device=total.device)
    with on_device_of(total):
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
            ROUND_FIRST=round_first,
            STAGES=STAGES,
            num_warps=_warps(width),
        )
        _add_partials[(triton.cdiv(width, COLUMNS),)](
            partials, of_gain, width, programs, PARTIALS=PARTIALS, COLUMNS=COLUMNS, num_warps=WARPS
        )
    return out, of_gain


def _warps(width: int) -> int:
    return 4 if width <= 2048 else 8


@rms_norm_forward.register_fake
def _(x: Tensor, gain: Tensor, epsilon: float, round_first: bool) -> Tensor:
    return x.new_empty(x.shape)


@add_rms_norm_forward.register_fake
def _(x: Tensor, y: Tensor, gain: Tensor, epsilon: float, round_first: bool) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape)


@rms_norm_backward.register_fake
def _(
    total: Tensor, of_total: Tensor | None, of_normed: Tensor, gain: Tensor, epsilon: float, round_first: bool
) -> tuple[Tensor, Tensor]:
    return total.new_empty(total.shape), torch.empty_like(gain)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, gain, *ctx.rules = inputs
    ctx.save_for_backward(x, gain)


def _keep_sum(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    _, _, gain, *ctx.rules = inputs
    ctx.save_for_backward(output[0], gain)


def _differentiate(ctx: Any, of_normed: Tensor) -> tuple[Tensor | None, ...]:
    x, gain = ctx.saved_tensors
    return *rms_norm_backward(x, None, of_normed, gain, *ctx.rules), None, None


def _differentiate_sum(ctx: Any, of_total: Tensor, of_normed: Tensor) -> tuple[Tensor | None, ...]:
    total, gain = ctx.saved_tensors
    of_x, of_gain = rms_norm_backward(total, of_total, of_normed, gain, *ctx.rules)
    return of_x, of_x, of_gain, None, None


rms_norm_forward.register_autograd(_differentiate, setup_context=_keep)
add_rms_norm_forward.register_autograd(_differentiate_sum, setup_context=_keep_sum)
