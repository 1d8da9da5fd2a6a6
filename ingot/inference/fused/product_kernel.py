"""Triton: the kernels of product.py.

A program of `product_kernel` computes all rows, at most BLOCK_M, by BLOCK_N outputs over all K inputs. In a decoding step that is
a few microseconds, most of them latency: of the launch, and of the first weights on their way from the memory. The weights do not
depend on the kernel before, so a program asks for its share of them at once, and only then waits for its inputs (model/early.py).

The norm before a product costs no pass of its own. For a gain g,

    rms_norm(x) Wᵀ = (g ⊙ x) Wᵀ / √(mean x² + ε).

The kernel that computes x also writes g ⊙ x, and for every row the sum of squares of its own BLOCK_N channels; the product takes
g ⊙ x as it is, adds the sums of a row up, always in the same order, and scales its result.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ingot.model.early_kernel import begin_early, fetch, wait

LINE = tl.constexpr(64)  # numbers of 16 bits that are fetched together


@triton.jit
def begin_kernel(x, scaled, squares, gain, width, EARLY: tl.constexpr, BLOCK: tl.constexpr):
    """g ⊙ x and Σ x² of one row."""
    if EARLY:
        begin_early()
        wait()
    row = tl.program_id(0).to(tl.int64)
    channel = tl.arange(0, BLOCK)
    inside = channel < width
    given = tl.load(x + row * width + channel, mask=inside, other=0.0).to(tl.float32)
    factor = tl.load(gain + channel, mask=inside, other=0.0).to(tl.float32)
    tl.store(scaled + row * width + channel, (given * factor).to(scaled.dtype.element_ty), mask=inside)
    tl.store(squares + row, tl.sum(given * given, 0))


@triton.jit
def product_kernel(
    x,  # [rows, K]; NORM: g ⊙ x
    weight,  # [outputs, K]; GATED: [2·outputs, K]
    bias,  # of `weight`
    squares,  # [rows, PARTS], NORM: of x
    residual,  # [rows, outputs], ADD
    gain,  # [outputs], ADD: of the norm that comes next
    out,  # [rows, outputs]
    scaled,  # [rows, outputs], ADD: gain ⊙ out
    squares_out,  # [rows, programs], ADD
    rows,
    outputs,
    epsilon,
    K: tl.constexpr,
    PARTS: tl.constexpr,
    NORM: tl.constexpr,
    GATED: tl.constexpr,
    ADD: tl.constexpr,
    BIAS: tl.constexpr,
    EARLY: tl.constexpr,  # the kernel before may still be running
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_PARTS: tl.constexpr,
    LINES: tl.constexpr,  # a power of two that holds those of a row of the weight
    STAGES: tl.constexpr,
):
    """x Wᵀ, or silu(x Gᵀ) ⊙ x Uᵀ, or x Wᵀ + residual."""
    row = tl.arange(0, BLOCK_M)
    output = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    near_row, near_output = tl.minimum(row, rows - 1).to(tl.int64), tl.minimum(output, outputs - 1).to(tl.int64)
    of_row = x + near_row[:, None] * K
    of_output = weight + near_output[None, :] * K
    of_up = of_output + outputs.to(tl.int64) * K
    if EARLY:
        begin_early()
        line = tl.minimum(tl.arange(0, LINES) * LINE, K - 1)
        fetch(of_output + line[:, None])
        if GATED:
            fetch(of_up + line[:, None])
        wait()

    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    total_up = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in tl.range(0, K, BLOCK_K, num_stages=STAGES):
        k = start + tl.arange(0, BLOCK_K)
        given = _tile(of_row + k[None, :], (k < K)[None, :], K % BLOCK_K == 0)
        found = _tile(of_output + k[:, None], (k < K)[:, None], K % BLOCK_K == 0)
        total = tl.dot(given, found, total)
        if GATED:
            found = _tile(of_up + k[:, None], (k < K)[:, None], K % BLOCK_K == 0)
            total_up = tl.dot(given, found, total_up)

    dtype = out.dtype.element_ty
    if NORM:
        part = tl.arange(0, BLOCK_PARTS)
        some = tl.load(squares + near_row[:, None] * PARTS + part[None, :], mask=(part < PARTS)[None, :], other=0.0)
        scale = tl.rsqrt(tl.sum(some, 1) / K + epsilon)[:, None]
        total *= scale
        total_up *= scale
    if BIAS:
        total += tl.load(bias + near_output).to(tl.float32)[None, :]
        if GATED:
            total_up += tl.load(bias + outputs + near_output).to(tl.float32)[None, :]
    if GATED:  # rounded where the result of the product would be
        gate, up = total.to(dtype).to(tl.float32), total_up.to(dtype).to(tl.float32)
        total = gate * tl.sigmoid(gate) * up
    place = row.to(tl.int64)[:, None] * outputs + output[None, :]
    inside = (row < rows)[:, None] & (output < outputs)[None, :]
    if ADD:
        total = total.to(dtype).to(tl.float32) + tl.load(residual + place, mask=inside, other=0.0).to(tl.float32)
        total = tl.where(inside, total.to(dtype).to(tl.float32), 0.0)
        factor = tl.load(gain + near_output).to(tl.float32)[None, :]
        tl.store(scaled + place, (total * factor).to(dtype), mask=inside)
        of_squares = squares_out + near_row * tl.num_programs(0) + tl.program_id(0)
        tl.store(of_squares, tl.sum(total * total, 1), mask=row < rows)
    tl.store(out + place, total.to(dtype), mask=inside)


@triton.jit
def _tile(place, inside, whole: tl.constexpr):
    if whole:
        return tl.load(place)
    return tl.load(place, mask=inside, other=0.0)
