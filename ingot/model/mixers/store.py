"""From the projection of new tokens to their queries, and their keys and values in the cache, in one go.

    q = rotate(norm(q)),   k = rotate(norm(k)) → its page,   v → its page

for every new token; norms per head and rotation where the layer has them (attention.py). A decoding step of a small model is
nothing but starts of small operations: this takes the place of the splits, norms, rotations, casts and scattered writes of every
layer. It is a kernel on CUDA (store_triton.py).

The reference is Attention's own path (`_project`, `_place`, TokenCache.write).

Shapes: N new tokens, F = (H + 2K)·W, H query heads, K key heads, W head width, R rotated pairs, P tokens of a page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ingot.model.mixers.attend_paged_triton import DTYPES, has_triton
from ingot.model.mixers.cache import TokenCache
from ingot.model.mixers.store_triton import store_triton

if TYPE_CHECKING:
    from ingot.model.mixers.attention import Attention


def store_can(layer: Attention, x: Tensor, cache: TokenCache) -> bool:
    """Whether `store` does all that lies between this layer's projection and its attention."""
    config = layer.config
    if config.dual_chunk is not None or config.query_key_norm not in ("none", "head"):
        return False
    if config.gate is not None and config.gate.place == "value":
        return False
    if torch.is_grad_enabled():
        return False
    return x.is_cuda and has_triton() and x.dtype in DTYPES  # which compute in float32: not for float64


def store(
    projected_NF: Tensor,
    keys: Tensor,
    values: Tensor,
    page_N: Tensor,
    offset_N: Tensor,
    turning: tuple[Tensor, Tensor] | None,
    gains: tuple[Tensor, Tensor] | None,
    *,
    heads: int,
    epsilon: float = 0.0,
    interleaved: bool = False,
    gain_after_cast: bool = True,
) -> Tensor:
    """Queries [N, H, W]; keys and values are written to the streams [pages, K, P, W].

    `turning`: cos and sin of N · R numbers. `gains`: those of the queries' and the keys' norms.
    """
    tensors = (projected_NF, keys, values, page_N, offset_N, turning, gains)
    return store_triton(
        *tensors, heads=heads, epsilon=epsilon, interleaved=interleaved, gain_after_cast=gain_after_cast
    )
