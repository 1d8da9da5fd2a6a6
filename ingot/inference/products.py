"""Which code multiplies matrices in float32 on an ARM CPU.

Torch sends a float32 `linear` to oneDNN with the ARM Compute Library, or for few rows to OpenBLAS. Both rearrange the matrix at
every call, unless there is a single row: a waste when a decoding step has few of them. Here one row goes to OpenBLAS's
matrix-vector product, 2 to 32 rows to the loops in few_rows/, and more to OpenBLAS.

Thirty matrices 576 → 3072 (212 MB, the largest part of SmolLM2-135M), milliseconds of one Neoverse N1 core:

    rows             1      2      4      8     16     32
    OpenBLAS      12.1   33.9   37.5   48.7   91.7  135.7
    few_rows      15.4   15.9   20.8   30.7   55.9  118.5
    bound         10.8   10.8   13.3   26.5   53.1  106.2

The bound is the larger of reading the weights once (19.6 GB/s) and of multiplying (32 GFLOP/s, what 64 rows reach); two cores
read 38 GB/s and multiply 64 GFLOP/s. All products of a step of that model with two threads of OpenBLAS: 18, 56, 60, 69, 101, 153
and 270 ms for 1, 2, 4, 8, 16, 32 and 64 rows; oneDNN with its packing: 122 ms for 16 and 295 ms for 64, as OpenBLAS below.
Other processors and types are left alone.

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

    The switch is for the whole process, like torch's. Another thread that trains meanwhile computes the same as before.
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
