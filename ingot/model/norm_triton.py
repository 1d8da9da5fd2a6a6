"""Triton: a residual sum and the norm of it in one pass, for decoding, where the number of kernels is the time.

    total = x + y,     normed = norm(total)        (norm.py; rounded where that one rounds)

The reference is `RmsNorm` of the sum. Shapes: N rows, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ingot.model.early import early
from ingot.model.mixers.attend_paged_triton import has_triton, on_device_of
from ingot.model.norm import RmsNorm

WIDEST = 16384  # a row is in the registers of one program


def add_norm_can(norm: RmsNorm, x: Tensor) -> bool:
    """Whether the kernel does what this norm does."""
    return x.is_cuda and has_triton() and norm.gain is not None and x.shape[-1] <= WIDEST and x.dtype != torch.float64


def add_norm(x: Tensor, y: Tensor | None, norm: RmsNorm) -> tuple[Tensor, Tensor]:
    """The sum, or x itself if there is nothing to add, and its norm."""
    from ingot.model.norm_kernel import add_norm_kernel

    gain = norm.used_gain()
    assert gain is not None
    x = x.contiguous()
    total = x if y is None else torch.empty_like(x)
    normed, width = torch.empty_like(x), x.shape[-1]
    with on_device_of(x):
        add_norm_kernel[(x.numel() // width,)](
            x,
            x if y is None else y.contiguous(),
            gain,
            total,
            normed,
            width,
            norm.epsilon,
            BLOCK=1 << (width - 1).bit_length(),
            ADD=y is not None,
            GAIN_AFTER_CAST=norm.config.cast == "before_gain",
            num_warps=4 if width <= 2048 else 8,
            **early(x),
        )
    return total, normed
