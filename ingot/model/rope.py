"""Rotary positions: rotate each pair of channels by an angle that grows with the position.

For pair i of r/2 (half-split pairing: channels i and i + r/2), angle(p) = p · θ^(−2i/r), and

    (a, b) -> (a cos − b sin, b cos + a sin).

A query at p and a key at q then score by their distance p − q only (Su et al., arXiv 2104.09864). Angles are computed
in float32 whatever the activation dtype: bfloat16 cannot tell position 1000 from 1001.
"""

from __future__ import annotations

import torch
from torch import Tensor


def rope_angles(positions_BT: Tensor, head_width: int, base: float) -> tuple[Tensor, Tensor]:
    """cos and sin [B, 1, T, head_width/2] in float32 for the given positions; the 1 broadcasts over heads."""
    exponents = torch.arange(0, head_width, 2, dtype=torch.float32, device=positions_BT.device) / head_width
    angles = positions_BT.float()[:, None, :, None] * base**-exponents
    return angles.cos(), angles.sin()


def rotate(x_BHTD: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate every head's channels; keeps the dtype of `x`."""
    first, second = x_BHTD.to(torch.promote_types(x_BHTD.dtype, torch.float32)).chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x_BHTD.dtype)
