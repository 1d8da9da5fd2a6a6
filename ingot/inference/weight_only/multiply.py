"""y = x ŵᵀ + b with packed weights: three ways to the same numbers.

* Few rows on CUDA: a Triton kernel that reads the packed weights once (multiply_triton.py).
* Few rows of float32 on an ARM CPU: compiled loops (few_rows/).
* Else, and the definition: ŵ is written out in the dtype of x, and multiplied by torch. With many rows that is also the
  fastest way, because the cost of writing ŵ is shared by all of them.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import linear

from ingot.inference.weight_only.scheme import Packed, unpack

MOST_ROWS = 256
TYPES = (torch.bfloat16, torch.float16, torch.float32)


def packed_linear(x: Tensor, packed: Packed, bias: Tensor | None) -> Tensor:
    """x ŵᵀ + b [..., O] in the dtype of x (under autocast in autocast's)."""
    device = x.device.type
    if torch.is_autocast_enabled(device):
        x = x.to(torch.get_autocast_dtype(device))
    rows = x.numel() // x.shape[-1]
    out = multiply_few(x, packed) if 0 < rows <= MOST_ROWS and x.dtype in TYPES else None
    if out is None:
        return plain_linear(x, packed, bias)
    return out if bias is None else out + bias.to(out.dtype)


def multiply_few(x: Tensor, packed: Packed) -> Tensor | None:
    """x ŵᵀ by code for few rows; None where there is none. What it needs is imported where it is used."""
    inputs, outputs = x.shape[-1], len(packed.integers)
    if x.is_cuda:
        from ingot.inference.weight_only.multiply_triton import packed_product

        return packed_product(x.reshape(-1, inputs), *packed).view(*x.shape[:-1], outputs)
    from ingot.inference.few_rows.multiply import can_multiply, multiply

    if not can_multiply(x, inputs, outputs):
        return None
    return multiply("int8" if packed.minimums is None else "int4", x, *packed)


def plain_linear(x: Tensor, packed: Packed, bias: Tensor | None) -> Tensor:
    """The definition."""
    return linear(x, unpack(packed, x.dtype), None if bias is None else bias.to(x.dtype))
