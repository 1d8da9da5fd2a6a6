"""`store` (store.py) on the CPU in float32: a compiled loop (store_loops.py; numba is imported at the first call).

Shapes: N new tokens, F = (H + 2K)·W, H query heads, K key heads, W head width, R rotated pairs, P tokens of a page.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor


def store_numba(
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
) -> Tensor:
    """Queries [N, H, W]; keys and values are written to the streams [pages, K, P, W]. `turning`: cos and sin of N · R numbers."""
    pages, key_heads, page, width = keys.shape
    tokens = projected_NF.shape[0]
    query_NHW = torch.empty(tokens, heads, width)
    cos, sin = (None, None) if turning is None else turning
    query_gain, key_gain = (None, None) if gains is None else gains
    inputs = (projected_NF, page_N, offset_N, cos, sin, query_gain, key_gain)
    tensors = [None if tensor is None else tensor.contiguous() for tensor in inputs]
    _loop()(
        query_NHW.data_ptr(),
        keys.data_ptr(),
        values.data_ptr(),
        *[0 if tensor is None else tensor.data_ptr() for tensor in tensors],
        tokens,
        heads,
        key_heads,
        pages,
        page,
        width,
        0 if cos is None else cos.shape[-1],
        epsilon,
        interleaved,
    )
    return query_NHW


@cache
def _loop() -> Any:
    from ingot.model.mixers.store_loops import store_rows

    return store_rows
