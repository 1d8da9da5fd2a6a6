"""Linear layer with weights in 8 or 4 bits: y = x ŵᵀ + b (pack_weights.py quantises them).

    8 bits, one scale per output           ŵ = s·q
    4 bits, a scale and a minimum a group  ŵ = s·u + m      two integers a byte: u_j in the low half, u_{j + G/2} in the high one

The definition writes ŵ out in the dtype of x and multiplies. For many rows that is also the fastest way, because they share the
cost of writing ŵ. For few rows a kernel reads the packed weights once.

Shapes: O outputs, I inputs, G inputs of a group, J = I / G groups.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

MOST_ROWS = 256
DTYPES = (torch.bfloat16, torch.float16, torch.float32)


class Packed(NamedTuple):
    """The integers [O, I] int8 and scales [O]; or [O, I/2] uint8, scales [O, J] and minimums [O, J]."""

    integers: Tensor
    scales: Tensor
    minimums: Tensor | None = None


def packed_linear(x: Tensor, packed: Packed, bias: Tensor | None) -> Tensor:
    """x ŵᵀ + b [..., O] in the dtype of x (under autocast in autocast's)."""
    device = x.device.type
    if torch.is_autocast_enabled(device):
        x = x.to(torch.get_autocast_dtype(device))
    if not kernel_allowed(x):
        return packed_linear_definition(x, packed, bias)
    from ingot.kernels.quantised.packed_linear_kernel import packed_product

    out = packed_product(x.reshape(-1, x.shape[-1]), *packed).view(*x.shape[:-1], len(packed.integers))
    return out if bias is None else out + bias.to(out.dtype)


def packed_linear_definition(x: Tensor, packed: Packed, bias: Tensor | None) -> Tensor:
    """The same in PyTorch."""
    return linear(x, unpack(packed, x.dtype), None if bias is None else bias.to(x.dtype))


def unpack(packed: Packed, dtype: torch.dtype) -> Tensor:
    """ŵ [O, I]."""
    integers, scales, minimums = packed
    if minimums is None:
        return (integers * scales[:, None]).to(dtype)
    octets_OJH = integers.unflatten(1, (scales.shape[1], -1))
    integers_OJG = torch.cat((octets_OJH & 15, octets_OJH >> 4), dim=2)
    return torch.addcmul(minimums[..., None], integers_OJG, scales[..., None]).flatten(1).to(dtype)


def kernel_allowed(x: Tensor) -> bool:
    """Whether the kernel can run: a few rows on CUDA."""
    return x.is_cuda and x.dtype in DTYPES and 0 < x.numel() // x.shape[-1] <= MOST_ROWS
