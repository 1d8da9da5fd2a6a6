"""silu(gate) ⊙ up in one pass over [gate | up] on the CPU, in float32, for sampling (no gradients).

`activate` in dense.py is the reference. Twice as fast: nothing is kept between two passes, and the exponential becomes vectors
(loops.py).

Shapes: F inner width; gate and up are the halves of a row of 2·F.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor


def gated_silu_can(projected: Tensor) -> bool:
    """Whether the loop takes this tensor: one that nobody differentiates, and that is not only there to be traced."""
    return (
        projected.dtype == torch.float32
        and projected.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and projected.is_inference()
    )


def gated_silu(projected: Tensor) -> Tensor:
    """silu(gate) ⊙ up [..., F] of [gate | up] [..., 2F]."""
    projected, width = projected.contiguous(), projected.shape[-1] // 2
    out = torch.empty(*projected.shape[:-1], width)
    _loop()(projected.data_ptr(), out.data_ptr(), out.numel() // width, width)
    return out


@cache
def _loop() -> Any:
    from ingot.model.feed_forward.gated_loops import gate_rows

    return gate_rows
