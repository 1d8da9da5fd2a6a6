"""Triton kernel of sum_rows.py. A program takes BLOCK channels of a token.

Shapes: N tokens, K rows of a sum, R rows, D width.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ingot.kernels.launch import on_device_of

BLOCK = 1024


@triton.jit
def _sum(rows, places, weights, out, width, K: tl.constexpr, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    total = tl.zeros((BLOCK,), tl.float32)
    for choice in tl.static_range(K):  # all rows are on their way at once
        place = tl.load(places + token * K + choice).to(tl.int64)
        part = tl.load(rows + place * width + column, mask=inside, other=0.0).to(tl.float32)
        if weights is not None:
            part *= tl.load(weights + token * K + choice).to(tl.float32)
        total += part
    tl.store(out + token * width + column, total, mask=inside)


def launch(rows_RD: Tensor, places_NK: Tensor, weights_NK: Tensor | None) -> Tensor:
    """[N, D] in float32."""
    (tokens, active), width = places_NK.shape, rows_RD.shape[1]
    out_ND = torch.empty(tokens, width, dtype=torch.float32, device=rows_RD.device)
    if out_ND.numel():
        with on_device_of(rows_RD):
            _sum[(tokens, triton.cdiv(width, BLOCK))](
                rows_RD.contiguous(),
                places_NK.contiguous(),
                None if weights_NK is None else weights_NK.contiguous(),
                out_ND,
                width,
                K=active,
                BLOCK=BLOCK,
                num_warps=4,
            )
    return out_ND
