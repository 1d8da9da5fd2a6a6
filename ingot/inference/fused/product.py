"""The products of a decoding step of a small model on a GPU: norm, activation and residual sum are in the same kernel.

    project        norm(x) Wᵀ + b
    project_gated  silu(norm(x) Gᵀ + b) ⊙ (norm(x) Uᵀ + c)
    add_product    x + y Wᵀ + b

for up to 64 rows. With a library's products a layer is ten kernels that are each as short as a kernel can be; with these it is
seven, each of which starts before the last has ended. The residual stream travels as a `Stream`: the next norm's share of the
work is done where the stream is written (product_kernel.py). All of a layer but its attention, µs on an H200:

    64 rows, width 576: 22.6 → 14.7      64 rows, width 1024: 28.2 → 22.2      32 rows, width 2048: 52 → 83

Large matrices keep the memory busy by themselves, and there a library's tiles are better: they are left to it.

The reference is `RmsNorm`, `Linear` and `activate` one after the other; sums are in float32 and rounded where those round, but
for the norm, whose scale comes after the product. tests/inference/fused/ compares them.

Shapes: N rows, D width of the stream, F outputs.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from ingot.inference.usual_layer import is_plain
from ingot.model.early import early
from ingot.model.linear import Linear
from ingot.model.mixers.attend_paged_triton import has_triton, on_device_of, power_of_two
from ingot.model.norm import RmsNorm

MOST_ROWS = 64  # of one program: more rows are work enough for a library's products
LARGEST = 6_000_000  # numbers of a matrix
ALIGNMENT = 8  # inputs: rows of W begin at multiples of 16 bytes
OUTPUTS, INPUTS, STAGES = (
    16,
    128,
    6,
)  # of a program, at a time, and how many of these are on their way; others are slower


class Stream(NamedTuple):
    """The residual stream x [N, D], with the gain of the norm that comes next on it, and its squares, summed in parts."""

    x: Tensor
    scaled: Tensor
    squares: Tensor  # [N, parts], in float32


def product_can(layer: Linear, rows: int) -> bool:
    """Whether the kernels multiply with this layer."""
    weight = layer.weight
    return (
        is_plain(layer)
        and layer.multiply is linear
        and weight.is_cuda
        and weight.dtype == torch.bfloat16
        and weight.shape[1] % ALIGNMENT == 0
        and weight.numel() <= LARGEST
        and rows <= MOST_ROWS
        and has_triton()
    )


def begin(x_ND: Tensor, norm: RmsNorm) -> Stream:
    """The stream where it has not been written by `add_product`."""
    from ingot.inference.fused.product_kernel import begin_kernel

    rows, width = x_ND.shape
    stream = Stream(x_ND, torch.empty_like(x_ND), x_ND.new_empty(rows, 1, dtype=torch.float32))
    with on_device_of(x_ND):
        begin_kernel[(rows,)](*stream, _gain(norm), width, BLOCK=power_of_two(width), **early(x_ND))
    return stream


def project(stream: Stream, norm: RmsNorm, layer: Linear) -> Tensor:
    """[N, F]; `norm` is the one whose gain the stream has."""
    return _launch(stream.scaled, layer, len(layer.weight), norm, stream.squares)[0]


def project_gated(stream: Stream, norm: RmsNorm, layer: Linear) -> Tensor:
    """[N, F] from a layer with the rows [gate | up] of 2·F."""
    return _launch(stream.scaled, layer, len(layer.weight) // 2, norm, stream.squares, gated=True)[0]


def add_product(stream: Stream, y_NF: Tensor, layer: Linear, following: RmsNorm) -> Stream:
    """The stream plus the layer's product with y, ready for the norm that follows."""
    return _launch(y_NF, layer, len(layer.weight), following, None, residual=stream.x)


def _gain(norm: RmsNorm) -> Tensor:
    gain = norm.used_gain()
    assert gain is not None
    return gain


def _launch(
    x: Tensor,
    layer: Linear,
    outputs: int,
    norm: RmsNorm,
    squares: Tensor | None,
    *,
    gated: bool = False,
    residual: Tensor | None = None,
) -> Stream:
    from ingot.inference.fused.product_kernel import LINE, product_kernel

    rows, inputs = x.shape
    programs = -(-outputs // OUTPUTS)
    parts = 1 if squares is None else squares.shape[1]
    out = x.new_empty(rows, outputs)
    sums = None if residual is None else x.new_empty(rows, programs, dtype=torch.float32)
    stream = Stream(out, out, out) if residual is None or sums is None else Stream(out, torch.empty_like(out), sums)
    with on_device_of(x):
        product_kernel[(programs,)](
            x.contiguous(),
            layer.weight,
            layer.weight if layer.bias is None else layer.bias,
            out if squares is None else squares,
            out if residual is None else residual,
            out if residual is None else _gain(norm),
            *stream,
            rows,
            outputs,
            norm.epsilon,
            K=inputs,
            PARTS=parts,
            NORM=squares is not None,
            GATED=gated,
            ADD=residual is not None,
            BIAS=layer.bias is not None,
            BLOCK_M=MOST_ROWS,
            BLOCK_N=OUTPUTS,
            BLOCK_K=INPUTS,
            BLOCK_PARTS=1 << (parts - 1).bit_length(),
            LINES=1 << (-(-inputs // LINE.value) - 1).bit_length(),
            STAGES=STAGES,
            num_warps=4,
            **early(x),
        )
    return stream
