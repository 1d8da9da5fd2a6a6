"""A residual sum and the norm of it in one pass on the CPU, for float32: a decoding step is mostly the calls of small operations.

    total = x + y,     normed = norm(total)        (norm.py)

The reference is `RmsNorm` of the sum. Shapes: D width.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from ingot.model.norm import RmsNorm


def add_norm_can(norm: RmsNorm, x: Tensor) -> bool:
    """Whether the loop does what this norm does, to a tensor that nobody differentiates."""
    gain = norm.gain
    return (
        gain is not None
        and x.device.type == "cpu"
        and x.dtype == gain.dtype == torch.float32
        and not torch.is_grad_enabled()
    )


def add_norm(x: Tensor, y: Tensor | None, norm: RmsNorm) -> tuple[Tensor, Tensor]:
    """The sum, or x itself if there is nothing to add, and its norm."""
    gain, width = norm.used_gain(), x.shape[-1]
    assert gain is not None
    x = x.contiguous()
    total, normed = x, torch.empty_like(x)
    added = 0
    if y is not None:
        y, total = y.contiguous(), torch.empty_like(x)
        added = y.data_ptr()
    rows = x.numel() // width
    _loop()(x.data_ptr(), added, gain.data_ptr(), total.data_ptr(), normed.data_ptr(), rows, width, norm.epsilon)
    return total, normed


@cache
def _loop() -> Any:
    from ingot.model.norm_loops import add_norm_rows

    return add_norm_rows
