"""Triton kernel of chosen_linear.py. A program takes some outputs of one choice, or of all choices of a token, which it sums.

The matrices are read once and bound the time, so products are plain multiplications: tensor cores would have one row of 16 to do.
The programs of all choices take the same outputs at about the same time; what two tokens both read is then found in the cache.

Shapes: N tokens, K choices of a token, E experts, I and O the widths of a product.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ingot.kernels.launch import on_device_of

WEIGHTS = 4096  # of a tile: a few loads of 16 bytes for each thread
INPUTS = 256  # of a tile: those of one output are added within a warp
WARPS = 4


@triton.jit
def _multiply(
    x, weight, bias, experts, weights, out, active, inputs, outputs,
    SUM: tl.constexpr, SHARED: tl.constexpr, CHOICES: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0)  # the token, or the choice
    choice = tl.arange(0, CHOICES)
    real = choice < (active if SUM else 1)
    choice = (at * active if SUM else at) + choice
    output = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    expert = tl.load(experts + choice, mask=real, other=0).to(tl.int64)
    row = expert[:, None] * outputs + output[None, :]
    fits = real[:, None] & (output < outputs)[None, :]
    given = x + (choice // active if SHARED else choice)[:, None] * inputs
    total = tl.zeros((CHOICES, OUTPUTS, INPUTS), tl.float32)
    for start in tl.range(0, inputs, INPUTS, num_stages=3):  # the next tiles are on their way
        column = start + tl.arange(0, INPUTS)
        inside = column < inputs
        w = tl.load(weight + (row * inputs)[:, :, None] + column, mask=fits[:, :, None] & inside, other=0.0)
        v = tl.load(given + column[None, :], mask=real[:, None] & inside[None, :], other=0.0)
        total += w.to(tl.float32) * v.to(tl.float32)[:, None, :]
    value = tl.sum(total, 2)
    if bias is not None:
        value += tl.load(bias + row, mask=fits, other=0.0).to(tl.float32)
    if weights is not None:
        value *= tl.load(weights + choice, mask=real, other=0.0).to(tl.float32)[:, None]
    # a program without SUM has one choice, of which this is the sum
    value = tl.sum(tl.where(real[:, None], value, 0.0), 0)
    tl.store(out + at.to(tl.int64) * outputs + output, value.to(out.dtype.element_ty), mask=output < outputs)


def launch_linear(x: Tensor, weight_EOI: Tensor, bias_EO: Tensor | None, experts_NK: Tensor) -> Tensor:
    """[N, K, O]; the input is one of each token [N, I] or of each choice [N, K, I]."""
    out_NKO = x.new_empty(*experts_NK.shape, weight_EOI.shape[1])
    _launch(x, weight_EOI, bias_EO, experts_NK, None, out_NKO, of_a_sum=1)
    return out_NKO


def launch_sum(
    x_NKI: Tensor, weight_EOI: Tensor, bias_EO: Tensor | None, experts_NK: Tensor, weights_NK: Tensor | None
) -> Tensor:
    """[N, O]."""
    out_NO = x_NKI.new_empty(len(x_NKI), weight_EOI.shape[1])
    _launch(x_NKI, weight_EOI, bias_EO, experts_NK, weights_NK, out_NO, of_a_sum=experts_NK.shape[1])
    return out_NO


def _launch(
    x: Tensor,
    weight_EOI: Tensor,
    bias_EO: Tensor | None,
    experts_NK: Tensor,
    weights_NK: Tensor | None,
    out: Tensor,
    of_a_sum: int,
) -> None:
    _, outputs, inputs = weight_EOI.shape
    choices = triton.next_power_of_2(of_a_sum)
    block = max(1, WEIGHTS // (choices * INPUTS))
    with on_device_of(x):
        _multiply[(experts_NK.numel() // of_a_sum, triton.cdiv(outputs, block))](
            x.contiguous(),
            weight_EOI,
            None if bias_EO is None else bias_EO.contiguous(),
            experts_NK.contiguous(),
            None if weights_NK is None else weights_NK.contiguous(),
            out,
            experts_NK.shape[1],
            inputs,
            outputs,
            SUM=of_a_sum > 1,
            SHARED=x.dim() == 2,
            CHOICES=choices,
            OUTPUTS=block,
            INPUTS=INPUTS,
            num_warps=WARPS,
        )
