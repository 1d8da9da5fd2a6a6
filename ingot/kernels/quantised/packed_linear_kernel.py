"""Triton kernel of packed_linear.py: multiplies a few rows with packed weights, which are never unpacked in memory.

Integers of 8 bits are exact in bfloat16 and float16, so the matrix units multiply x with the integers themselves, and scales
(and minimums) are applied to sums in float32:

    8 bits:   y[n, o] = s[o] Σ_i x[n, i] q[o, i]
    4 bits:   y[n, o] = Σ_j ( s[o, j] Σ_{i in j} x[n, i] u[o, i]  +  m[o, j] Σ_{i in j} x[n, i] )         j: groups of inputs

A program computes a block of rows and outputs. Where there are too few blocks to occupy the device the inputs are divided
too (split-K): the parts are sums in float32 that are added in a fixed order, so that equal inputs give equal bits. Nothing
waits for the device, and sizes depend on shapes alone: the operator can be captured in a CUDA graph.

tests/kernels/test_packed_linear_cuda.py compares it with the definition (packed_linear.py).

Shapes: N rows, I inputs, O outputs, J groups, P parts of the inputs.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

PROGRAMS = 264  # programs that should run at once: two for each multiprocessor of a large device
INPUTS = 128  # of int8 that a program takes at a time


@triton.jit
def _product_8(
    x, integers, scales, out, rows, inputs, outputs,
    STEPS: tl.constexpr, ROWS: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr,
):  # fmt: skip
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    part = tl.program_id(2)
    row_inside, output_inside = row[:, None] < rows, output[:, None] < outputs
    total = tl.zeros((ROWS, OUTPUTS), tl.float32)
    for step in range(STEPS):
        column = (part * STEPS + step) * INPUTS + tl.arange(0, INPUTS)[None, :]
        x_block = tl.load(x + row[:, None] * inputs + column, mask=row_inside & (column < inputs), other=0.0)
        w_place = integers + output[:, None].to(tl.int64) * inputs + column
        w_block = tl.load(w_place, mask=output_inside & (column < inputs), other=0)
        total = tl.dot(x_block, tl.trans(w_block.to(x_block.dtype)), total, input_precision="ieee")
    scale = tl.load(scales + output, mask=output < outputs, other=0.0).to(tl.float32)
    target = (part * rows + row[:, None]).to(tl.int64) * outputs + output[None, :]
    value = (total * scale[None, :]).to(out.dtype.element_ty)
    tl.store(out + target, value, mask=row_inside & (output[None, :] < outputs))


@triton.jit
def _product_4(
    x, integers, scales, minimums, out, rows, inputs, outputs,
    STEPS: tl.constexpr, ROWS: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr,
):  # fmt: skip
    HALF: tl.constexpr = INPUTS // 2
    groups = inputs // INPUTS
    output = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    part = tl.program_id(2)
    column = tl.arange(0, HALF)[None, :]
    row_inside, output_inside = row[:, None] < rows, output < outputs
    total = tl.zeros((ROWS, OUTPUTS), tl.float32)
    for step in range(STEPS):
        group = part * STEPS + step
        inside = group < groups
        x_place = x + row[:, None] * inputs + group * INPUTS + column
        x_low = tl.load(x_place, mask=row_inside & inside, other=0.0)
        x_high = tl.load(x_place + HALF, mask=row_inside & inside, other=0.0)
        w_place = integers + (output[:, None].to(tl.int64) * groups + group) * HALF + column
        octets = tl.load(w_place, mask=output_inside[:, None] & inside, other=0)
        scale = tl.load(scales + output * groups + group, mask=output_inside & inside, other=0.0).to(tl.float32)
        minimum = tl.load(minimums + output * groups + group, mask=output_inside & inside, other=0.0).to(tl.float32)
        product = tl.dot(x_low, tl.trans((octets & 15).to(x_low.dtype)), input_precision="ieee")
        product = tl.dot(x_high, tl.trans((octets >> 4).to(x_low.dtype)), product, input_precision="ieee")
        sums = tl.sum(x_low.to(tl.float32), 1) + tl.sum(x_high.to(tl.float32), 1)
        total += product * scale[None, :] + sums[:, None] * minimum[None, :]
    target = (part * rows + row[:, None]).to(tl.int64) * outputs + output[None, :]
    tl.store(out + target, total.to(out.dtype.element_ty), mask=row_inside & output_inside[None, :])


def launch(x_NI: Tensor, integers: Tensor, scales: Tensor, minimums: Tensor | None) -> Tensor:
    """x ŵᵀ [N, O] in the dtype of x."""
    (rows, inputs), outputs = x_NI.shape, len(integers)
    block_rows = min(max(16, triton.next_power_of_2(rows)), 64)
    block_outputs = 32 if rows <= 32 else 64
    step = INPUTS if minimums is None else inputs // scales.shape[1]
    all_steps = triton.cdiv(inputs, step)
    grid = triton.cdiv(outputs, block_outputs), triton.cdiv(rows, block_rows)
    steps = triton.cdiv(all_steps, min(all_steps, max(1, PROGRAMS // (grid[0] * grid[1]))))  # of a program
    parts = triton.cdiv(all_steps, steps)
    out = x_NI.new_empty(parts, rows, outputs, dtype=x_NI.dtype if parts == 1 else torch.float32)
    sizes = {"STEPS": steps, "ROWS": block_rows, "OUTPUTS": block_outputs, "INPUTS": step}
    if minimums is None:
        _product_8[(*grid, parts)](x_NI, integers, scales, out, rows, inputs, outputs, **sizes)
    else:
        _product_4[(*grid, parts)](x_NI, integers, scales, minimums, out, rows, inputs, outputs, **sizes)
    return out[0] if parts == 1 else out.sum(0).to(x_NI.dtype)


@torch.library.custom_op("ingot::packed_product", mutates_args=())
def packed_product(x_NI: Tensor, integers: Tensor, scales: Tensor, minimums: Tensor | None) -> Tensor:
    """x ŵᵀ [N, O] on the device of x; the tensors are those of scheme.Packed."""
    with torch.cuda.device(x_NI.device):
        return launch(x_NI.contiguous(), integers, scales, minimums)


@packed_product.register_fake
def _(x_NI: Tensor, integers: Tensor, scales: Tensor, minimums: Tensor | None) -> Tensor:
    return x_NI.new_empty(len(x_NI), len(integers))
