"""Triton kernels of swiglu.py, as operators that torch.compile leaves whole. A program takes BLOCK channels of a token.

Shapes: N tokens, F inner width; gate and up are the halves of a row of 2·F.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ingot.kernels.launch import on_device_of

BLOCK = 1024


@triton.jit
def _forward(projected, out, width, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    gate = tl.load(projected + token * 2 * width + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(projected + token * 2 * width + width + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + token * width + column, (gate * tl.sigmoid(gate) * up).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _backward(projected, gradient, out, width, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    gate = tl.load(projected + token * 2 * width + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(projected + token * 2 * width + width + column, mask=inside, other=0.0).to(tl.float32)
    given = tl.load(gradient + token * width + column, mask=inside, other=0.0).to(tl.float32)
    share = tl.sigmoid(gate)
    of_gate = given * up * share * (1.0 + gate * (1.0 - share))
    of_up = given * gate * share
    tl.store(out + token * 2 * width + column, of_gate.to(out.dtype.element_ty), mask=inside)
    tl.store(out + token * 2 * width + width + column, of_up.to(out.dtype.element_ty), mask=inside)


def _grid(projected: Tensor) -> tuple[int, int]:
    width = projected.shape[-1] // 2
    return projected.numel() // (2 * width), triton.cdiv(width, BLOCK)


def launch(projected: Tensor) -> Tensor:
    """silu(gate) ⊙ up [..., F] of [gate | up] [..., 2F]."""
    projected = projected.contiguous()
    width = projected.shape[-1] // 2
    out = torch.empty(*projected.shape[:-1], width, dtype=projected.dtype, device=projected.device)
    if out.numel():
        with on_device_of(out):
            _forward[_grid(projected)](projected, out, width, BLOCK=BLOCK, num_warps=4)
    return out


@torch.library.custom_op("ingot::swiglu", mutates_args=())
def swiglu_forward(projected: Tensor) -> Tensor:
    """`launch` as an operator with a gradient."""
    return launch(projected)


@torch.library.custom_op("ingot::swiglu_backward", mutates_args=())
def swiglu_backward(projected: Tensor, gradient: Tensor) -> Tensor:
    """The gradient of [gate | up]."""
    projected, gradient = projected.contiguous(), gradient.contiguous()
    out = torch.empty_like(projected)
    if out.numel():
        with on_device_of(out):
            _backward[_grid(projected)](projected, gradient, out, projected.shape[-1] // 2, BLOCK=BLOCK, num_warps=4)
    return out


@swiglu_forward.register_fake
def _(projected: Tensor) -> Tensor:
    return projected.new_empty(*projected.shape[:-1], projected.shape[-1] // 2)


@swiglu_backward.register_fake
def _(projected: Tensor, gradient: Tensor) -> Tensor:
    return projected.new_empty(projected.shape)


def _remember(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])


def _differentiate(ctx: Any, gradient: Tensor) -> Tensor:
    (projected,) = ctx.saved_tensors
    return swiglu_backward(projected, gradient)


swiglu_forward.register_autograd(_differentiate, setup_context=_remember)
