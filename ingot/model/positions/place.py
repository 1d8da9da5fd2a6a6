"""From the joint projection of a layer to its heads at their positions, in one kernel: 16 bits on a GPU (place_triton.py).

    q = turn(norm(q)),   k = turn(norm(k)),   v

with norms per head where the layer has them. Each of the three is contiguous as [B, T, heads, W], the layout that fused
attention reads and gives its gradients in, so nothing is copied before, after, or on the way back. The reference is
Attention's own path (`_project`, `_place` in mixers/attention.py), which everything else takes.

Shapes: B rows, T tokens, H query heads, K key heads, W head width, R turned pairs of channels, F = (H + 2K)·W.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ingot.model.positions.config import RopeConfig

if TYPE_CHECKING:
    from ingot.model.mixers.attention import AttentionConfig


def place_can(config: AttentionConfig, projected: Tensor) -> bool:
    """Whether the kernel does all that lies between this layer's projection and its attention."""
    turns = config.rope is not None and config.dual_chunk is None and config.head_width % 2 == 0
    half = projected.dtype in (torch.bfloat16, torch.float16)
    return turns and config.query_key_norm in ("none", "head") and half and projected.is_cuda


def place(
    projected_BTF: Tensor,
    turning: tuple[Tensor, Tensor],
    gains: tuple[Tensor, Tensor] | None,
    rope: RopeConfig,
    *,
    heads: int,
    key_heads: int,
    epsilon: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries [B, H, T, W], keys and values [B, K, T, W], in memory ordered as [B, T, heads, W].

    `turning`: cos and sin [B or 1, 1, T, R]. `gains`: those of the queries' and the keys' norms.
    """
    from ingot.model.positions.place_triton import place_heads

    stacked = None if gains is None else torch.stack(gains).float()
    parts = place_heads(projected_BTF, *turning, stacked, heads, key_heads, epsilon, rope.pairing == "interleaved")
    query, key, value = (part.transpose(1, 2) for part in parts)
    return query, key, value
