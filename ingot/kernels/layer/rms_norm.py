"""Root-mean-square norm, and a residual sum with the norm of it (Zhang and Sennrich, arXiv 1910.07467).

    rms_norm        h = x / sqrt(mean(x²) + ε) · g
    add_rms_norm    t = x + y,    h = rms_norm(t)

The mean is taken in float32 whatever the dtype. `round_first` says where 16-bit results are rounded: before the gain (Llama) or
after it (OLMo, Gemma).

The kernel (rms_norm_kernel.py) is for sampling: one pass over memory, in float32, with only results rounded. Training runs the
definition, of which the compiler makes code that is as fast.

Shapes: […, D] with D the width; the gain is [D].
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from ingot.kernels.launch import has_triton

WIDEST = 8192  # a row is in the registers of one program
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
MeanSquare = Callable[[Tensor], Tensor]  # of channels that several ranks share [… D] -> [… 1]


def rms_norm_definition(
    x: Tensor, gain: Tensor | None, epsilon: float, round_first: bool, mean_square: MeanSquare | None = None
) -> Tensor:
    """The norm of x; `mean_square` where x is only this rank's share of the channels."""
    norm = _norm if mean_square is None else partial(_norm_by, mean_square)
    if gain is None:
        return norm(x, None, epsilon)
    if x.dtype == gain.dtype and x.dtype in (torch.float32, torch.float64):
        return norm(x, gain, epsilon)  # where nothing is rounded the order makes no difference
    if round_first:
        return norm(x, None, epsilon) * gain.to(x.dtype)
    return norm(x.float(), gain.float(), epsilon).to(x.dtype)


def _norm(x: Tensor, gain: Tensor | None, epsilon: float) -> Tensor:
    return functional.rms_norm(x, (x.shape[-1],), gain, epsilon)


def _norm_by(mean_square: MeanSquare, x: Tensor, gain: Tensor | None, epsilon: float) -> Tensor:
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    normed = (wide * torch.rsqrt(mean_square(wide) + epsilon)).to(x.dtype)
    return normed if gain is None else normed * gain


def add_rms_norm_definition(
    x: Tensor, y: Tensor, gain: Tensor | None, epsilon: float, round_first: bool
) -> tuple[Tensor, Tensor]:
    """The sum and its norm."""
    total = x + y
    return total, rms_norm_definition(total, gain, epsilon, round_first)


def kernel_allowed(x: Tensor, gain: Tensor | None) -> bool:
    """The kernel takes: CUDA, a gain, at most WIDEST channels, at most 32 bits; no gradients, and no compiled code."""
    if not x.is_cuda or gain is None or x.shape[-1] > WIDEST or x.dtype not in DTYPES or not has_triton():
        return False
    return not torch.is_grad_enabled() and not torch.compiler.is_compiling()


def rms_norm(x: Tensor, gain: Tensor | None, epsilon: float, round_first: bool, *, kernel: bool = True) -> Tensor:
    """The norm of x; with `kernel` false always by the definition."""
    if gain is None or not kernel or not kernel_allowed(x, gain):
        return rms_norm_definition(x, gain, epsilon, round_first)
    from ingot.kernels.layer.rms_norm_kernel import launch

    return launch(x, None, gain, epsilon, round_first)[1]


def add_rms_norm(
    x: Tensor, y: Tensor, gain: Tensor | None, epsilon: float, round_first: bool, *, kernel: bool = True
) -> tuple[Tensor, Tensor]:
    """x + y, and its norm."""
    if gain is None or not kernel or x.dtype != y.dtype or not kernel_allowed(x, gain):
        return add_rms_norm_definition(x, y, gain, epsilon, round_first)
    from ingot.kernels.layer.rms_norm_kernel import launch

    return launch(x, y, gain, epsilon, round_first)
