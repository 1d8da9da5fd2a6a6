"""A residual sum and the norm of it in one pass on the CPU, for float32: a decoding step is mostly the calls of small operations.

    total = x + y,     normed = norm(total)        (norm.py)

The reference is `RmsNorm` of the sum. Shapes: D width.
"""

from __future__ import annotations

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
    from ingot.model.norm_loops import add_norm_rows

    gain = norm.used_gain()
    assert gain is not None
    x, gain = x.contiguous(), gain.contiguous()
    total, normed, width = x, torch.empty_like(x), x.shape[-1]
    if y is not None:
        y, total = y.contiguous(), torch.empty_like(x)
    add_norm_rows(
        x.data_ptr(),
        0 if y is None else y.data_ptr(),
        gain.data_ptr(),
        total.data_ptr(),
        normed.data_ptr(),
        x.numel() // width,
        width,
        norm.epsilon,
    )
    return total, normed
