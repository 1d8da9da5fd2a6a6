"""y = x ŵᵀ + b with packed weights: two ways to the same numbers.

* Few rows on CUDA: a Triton kernel that reads the packed weights once (multiply_triton.py).
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
    if not (x.is_cuda and 0 < rows <= MOST_ROWS and x.dtype in TYPES):
        return plain_linear(x, packed, bias)
    from ingot.inference.weight_only.multiply_triton import packed_product

    out = packed_product(x.reshape(rows, -1), *packed).view(*x.shape[:-1], len(packed.integers))
    return out if bias is None else out + bias.to(out.dtype)


def plain_linear(x: Tensor, packed: Packed, bias: Tensor | None) -> Tensor:
    """The definition."""
    return linear(x, unpack(packed, x.dtype), None if bias is None else bias.to(x.dtype))
