"""Which code multiplies matrices in float32 on an ARM CPU.

Torch sends a float32 `linear` to oneDNN with the ARM Compute Library, or for few rows to OpenBLAS. Both rearrange the matrix at
every call, unless there is a single row: a waste when a decoding step has few of them. Here one row goes to OpenBLAS's
matrix-vector product, 2 to 32 rows to the loops in few_rows/, and more to OpenBLAS.

All products of a step of SmolLM2-135M (540 MB of weights), milliseconds, one and two Neoverse N1 cores:

    rows               1      2      4      8     16     32     64
    OpenBLAS, two     18     56     60     69    106    157    277
    few_rows, two            23.5   26.6   39.9     75    146    285
    bound, two        14     14     14     27     54    108    216
    OpenBLAS, one                                 188    301    535
    few_rows, one              42     49     76    141    283    562

The bound is the larger of reading the weights once (38 GB/s) and of multiplying (80 GFLOP/s). oneDNN with its packing: 122 ms for
16 rows and 295 for 64. The calls from Python are part of these times: some 3 ms of few_rows'. Where all layers of a pass fit
they go through one call instead, without this choice (few_rows/stack.py). Other processors and types are left alone.

Libraries lose most of their speed when other processes compete for the cores, OpenBLAS more than others (its threads wait for
each other): on such a machine one thread is several times as fast as two.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn.functional import linear

from ingot.inference.few_rows.multiply import can_multiply, multiply
from ingot.model.linear import Linear

IS_ARM = platform.machine().lower() in ("aarch64", "arm64")
MOST_ROWS = 32


def multiply_few(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """y = x Wᵀ + b, by the loops where they are faster; torch's `linear` for all else, also where gradients are asked for."""
    outputs, inputs = weight.shape
    few = inputs < x.numel() <= MOST_ROWS * inputs and x.shape[-1] == inputs
    plain = weight.dtype == torch.float32 and weight.is_contiguous() and not torch.is_autocast_enabled("cpu")
    learns = torch.is_grad_enabled() and weight.requires_grad
    if not (few and plain) or learns or not can_multiply(x, inputs, outputs):
        return linear(x, weight, bias)
    out = multiply("float32", x, weight)
    return out if bias is None else out.add_(bias)


@contextmanager
def fast_products(weight: Tensor) -> Iterator[None]:
    """While inside, products with matrices like `weight` take the faster way, in all layers without one of their own.

    The switch is for the whole process, like torch's. Another thread that trains meanwhile computes the same, rounded otherwise.
    """
    if not (IS_ARM and weight.dtype == torch.float32 and weight.device.type == "cpu"):
        yield
        return
    before, before_multiply = torch.backends.mkldnn.set_flags(False, _fp32_precision=None)[0], Linear.multiply
    Linear.multiply = staticmethod(multiply_few)
    try:
        yield
    finally:
        Linear.multiply = staticmethod(before_multiply)
        torch.backends.mkldnn.set_flags(before, _fp32_precision=None)
