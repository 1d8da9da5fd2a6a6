"""Triton: `store` (store.py) on CUDA. Sums and products are in float32 and rounded where the reference rounds.

Shapes: N new tokens, H query heads, K key heads, W head width, R rotated pairs, P tokens of a page.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from torch import Tensor

from ingot.model.early import early
from ingot.model.mixers.attend_paged_triton import on_device_of, power_of_two


def store_triton(
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
    """Queries [N, H, W]; keys and values are written to the streams [pages, K, P, W]. `turning`: cos and sin
    of N · R numbers."""
    key_heads, page, width = keys.shape[1:]
    query_NHW = projected_NF.new_empty(len(projected_NF), heads, width)
    cos, sin = (query_NHW, query_NHW) if turning is None else turning
    query_gain, key_gain = (query_NHW, query_NHW) if gains is None else gains
    with on_device_of(query_NHW):
        _kernel()[(len(projected_NF),)](
            projected_NF,
            query_NHW,
            keys,
            values,
            page_N,
            offset_N,
            cos,
            sin,
            query_gain,
            key_gain,
            epsilon,
            projected_NF.stride(0),
            HEADS=heads,
            KEYS=key_heads,
            P=page,
            W=width,
            R=0 if turning is None else cos.shape[-1],
            BLOCK_H=power_of_two(heads + 2 * key_heads),
            BLOCK_W=power_of_two(width),
            NORM=gains is not None,
            INTERLEAVED=interleaved,
            GAIN_AFTER_CAST=gain_after_cast,
            num_warps=4,
            **early(query_NHW),
        )
    return query_NHW


@cache
def _kernel() -> Any:
    from ingot.model.mixers.store_kernel import store_kernel

    return store_kernel
