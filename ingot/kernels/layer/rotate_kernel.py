"""Triton kernel of rotate.py: a program takes some heads of one token.

Every channel is its own times cos plus its partner's times ± sin; a channel that is passed has cos 1 and sin 0. Both factors are
read once for all heads. The result is contiguous as [B, T, heads, W], the layout that attention over pages reads.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ingot.kernels.launch import dependent_launch, on_device_of
from ingot.kernels.launch_kernel import launch_dependents, wait

NUMBERS = 2048  # of a program: heads times channels


@triton.jit
def rotate_kernel(
    x,  # [B, heads, T, W]
    out,  # [B, T, heads, W]
    cos,  # [B, 1, T, R]
    sin,
    x_b,
    x_h,
    x_t,
    cos_b,
    cos_t,
    tokens,
    HEADS: tl.constexpr,
    W: tl.constexpr,
    R: tl.constexpr,
    BEGIN: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_W: tl.constexpr,
    DEPENDENT_LAUNCH: tl.constexpr,
):
    """BLOCK_H heads of one token."""
    if DEPENDENT_LAUNCH:
        launch_dependents()
        wait()
    item = tl.program_id(0).to(tl.int64)
    row, token = item // tokens, item % tokens
    head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    channel = tl.arange(0, BLOCK_W)
    place = channel - BEGIN
    turns = (place >= 0) & (place < 2 * R)
    if INTERLEAVED:
        pair, second = place // 2, place % 2 == 1
        partner = tl.where(second, channel - 1, channel + 1)
    else:
        pair, second = place % R, place >= R
        partner = tl.where(second, channel - R, channel + R)
    at = row * cos_b + token * cos_t + pair
    cosine = tl.load(cos + at, mask=turns, other=1.0)
    sine = tl.load(sin + at, mask=turns, other=0.0)
    sine = tl.where(second, sine, -sine)

    inside = (head < HEADS)[:, None]
    source = x + row * x_b + token * x_t + head.to(tl.int64)[:, None] * x_h
    own = tl.load(source + channel[None, :], mask=inside & (channel < W)[None, :], other=0.0).to(tl.float32)
    other = tl.load(source + partner[None, :], mask=inside & turns[None, :], other=0.0).to(tl.float32)
    turned = own * cosine[None, :] + other * sine[None, :]
    to = out + (item * HEADS + head)[:, None] * W + channel[None, :]
    tl.store(to, turned.to(out.dtype.element_ty), mask=inside & (channel < W)[None, :])


def launch(x_BHTW: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, begin: int) -> Tensor:
    """The rotated heads [B, heads, T, W], a view of [B, T, heads, W]."""
    rows, heads, tokens, width = x_BHTW.shape
    out_BTHW = x_BHTW.new_empty(rows, tokens, heads, width)
    if not out_BTHW.numel():
        return out_BTHW.transpose(1, 2)
    x_BHTW = x_BHTW if x_BHTW.stride(-1) == 1 else x_BHTW.contiguous()
    cos, sin = (each.expand(rows, 1, tokens, cos.shape[-1]) for each in (cos, sin))
    if cos.stride() != sin.stride() or cos.stride(3) != 1:
        cos, sin = cos.contiguous(), sin.contiguous()
    block_w = triton.next_power_of_2(width)
    block_h = max(1, min(triton.next_power_of_2(heads), NUMBERS // block_w))
    with on_device_of(out_BTHW):
        rotate_kernel[(rows * tokens, triton.cdiv(heads, block_h))](
            x_BHTW,
            out_BTHW,
            cos,
            sin,
            *x_BHTW.stride()[:3],
            cos.stride(0),
            cos.stride(2),
            tokens,
            HEADS=heads,
            W=width,
            R=cos.shape[-1],
            BEGIN=begin,
            INTERLEAVED=interleaved,
            BLOCK_H=block_h,
            BLOCK_W=block_w,
            num_warps=4,
            **dependent_launch(out_BTHW),
        )
    return out_BTHW.transpose(1, 2)
