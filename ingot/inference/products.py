"""Which library multiplies matrices on an ARM CPU.

Torch sends a float32 `linear` on ARM to oneDNN with the ARM Compute Library, which rearranges the whole weight matrix
at every call: a waste for the few rows of a decoding step. OpenBLAS reads the matrix as it is. On two Neoverse N1 cores
the products in the layers of a 3M-parameter model take, for 64 rows, 5.4 ms instead of 7.8 ms, and for 2048 rows 137 ms
instead of 146 ms; matrices of width 1024 are also 5 to 30 % faster. Other processors and types are left alone.

Both lose most of their speed when other processes compete for the cores, OpenBLAS more (its threads wait for each other):
on such a machine one thread is several times as fast as two.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

IS_ARM = platform.machine().lower() in ("aarch64", "arm64")


@contextmanager
def fast_products(weight: Tensor) -> Iterator[None]:
    """While inside, products with matrices like `weight` take the faster way."""
    if not (IS_ARM and weight.dtype == torch.float32 and weight.device.type == "cpu"):
        yield
        return
    before = torch.backends.mkldnn.set_flags(False, _fp32_precision=None)[0]
    try:
        yield
    finally:
        torch.backends.mkldnn.set_flags(before, _fp32_precision=None)
