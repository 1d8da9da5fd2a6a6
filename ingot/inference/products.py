"""Which library multiplies small matrices on an ARM CPU.

Torch sends a float32 `linear` on ARM to oneDNN with the ARM Compute Library, which rearranges the whole weight matrix
at every call. For the few hundred rows of a prompt that pays off; for the rows of a decoding step it does not. OpenBLAS
reads the matrix as it is: on two Neoverse N1 cores, 64 rows times the matrices of a 3M-parameter model take 6.5 ms a
step instead of 9.3 ms. Other processors and types are left alone.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

ROWS = 256  # from here on both libraries take the same time
IS_ARM = platform.machine().lower() in ("aarch64", "arm64")


@contextmanager
def matrix_products(weight: Tensor, rows: int) -> Iterator[None]:
    """While inside, products of `rows` rows with matrices like `weight` take the faster way."""
    if not (IS_ARM and rows < ROWS and weight.dtype == torch.float32 and weight.device.type == "cpu"):
        yield
        return
    before = torch.backends.mkldnn.set_flags(False, _fp32_precision=None)[0]  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        torch.backends.mkldnn.set_flags(before, _fp32_precision=None)  # type: ignore[no-untyped-call]
