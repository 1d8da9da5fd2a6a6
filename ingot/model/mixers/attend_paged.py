"""Softmax attention of new tokens to a cache in pages (cache.py): one function, the fastest backend that can do it.

| backend | how                                                           | chosen for                        |
|---------|---------------------------------------------------------------|-----------------------------------|
| triton  | one kernel that walks the rows' tables, split over the keys   | CUDA                              |
| gather  | pages copied together, then torch's attention under a mask    | the rest; the reference of tests  |

Shapes: B rows, H query heads, K key and value heads, T new tokens, S places, W key width, V value width.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ingot.model.context import Context
from ingot.model.mixers.attend_paged_triton import attend_paged_triton, triton_can
from ingot.model.mixers.attend_plain import attend_plain
from ingot.model.mixers.cache import TokenCache

Backend = Literal["triton", "gather"]

_forced: Backend | None = None


@contextmanager
def use_paged_backend(backend: Backend) -> Iterator[None]:
    """Inside, attention over pages runs on `backend`: for tests and benchmarks."""
    global _forced
    before, _forced = _forced, backend
    try:
        yield
    finally:
        _forced = before


def attend_paged(
    query_BHTW: Tensor,
    cache: TokenCache,
    context: Context,
    *,
    scale: float,
    window: int | None = None,
    chunk: int | None = None,
    softcap: float | None = None,
    sinks_H: Tensor | None = None,
) -> Tensor:
    """Attention [B, H, T, V] of the pass's tokens to themselves and their past, which are in the cache already."""
    keys, values = cache.streams["keys"], cache.streams["values"]
    backend = _forced or _choose(query_BHTW, keys, values)
    if backend != "gather":
        return attend_paged_triton(
            query_BHTW,
            keys,
            values,
            cache.table(context),
            context.positions_BT,
            scale=scale,
            window=window,
            chunk=chunk,
            softcap=softcap,
            sinks_H=sinks_H,
        )
    key, value = (cache.read(name, context).to(query_BHTW.dtype) for name in ("keys", "values"))
    places = (cache.own_pages, key.shape[2])
    visible = context.once(
        ("past", window, chunk, places),
        lambda: visible_past(context.positions_BT, cache.positions(context), window, chunk),
    )
    return attend_past(query_BHTW, key, value, visible, scale=scale, softcap=softcap, sinks_H=sinks_H)


def _choose(query_BHTW: Tensor, keys_NKPW: Tensor, values_NKPV: Tensor) -> Backend:
    return "triton" if triton_can(query_BHTW, keys_NKPW, values_NKPV) else "gather"


def visible_past(positions_BT: Tensor, keys_BS: Tensor, window: int | None = None, chunk: int | None = None) -> Tensor:
    """Whether queries at `positions_BT` see keys at positions `keys_BS`: booleans [B, 1, T, S]."""
    query, key = positions_BT[:, None, :, None], keys_BS[:, None, None, :]
    visible = (key <= query) & (key >= 0)
    if window is not None:
        visible = visible & (query - key < window)
    if chunk is not None:
        visible = visible & (key >= query - query % chunk)
    return visible


def attend_past(
    query_BHTW: Tensor,
    key_BKSW: Tensor,
    value_BKSV: Tensor,
    visible_B1TS: Tensor,
    *,
    scale: float,
    softcap: float | None = None,
    sinks_H: Tensor | None = None,
) -> Tensor:
    """Attention [B, H, T, V] of new tokens to keys and values that were copied together."""
    if softcap is not None or sinks_H is not None:
        return attend_plain(
            query_BHTW, key_BKSW, value_BKSV, visible_B1TS, scale=scale, softcap=softcap, sinks_H=sinks_H
        )
    group = query_BHTW.shape[1] // key_BKSW.shape[1]
    if group == 1 or query_BHTW.device.type == "cpu":
        return scaled_dot_product_attention(
            query_BHTW, key_BKSW, value_BKSV, visible_B1TS, scale=scale, enable_gqa=group > 1
        )
    # no fused kernel for masks with grouped heads there: the queries of a group become rows of one longer query
    rows = query_BHTW.unflatten(1, (-1, group)).flatten(2, 3)
    mixed = scaled_dot_product_attention(rows, key_BKSW, value_BKSV, visible_B1TS.repeat(1, 1, group, 1), scale=scale)
    return mixed.unflatten(2, (group, -1)).flatten(1, 2)
