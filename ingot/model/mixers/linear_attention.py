"""Linear attention with a decaying state (kernels/linear/decayed_attention.py) over the rows of a pass, with documents, caches.

Shapes: B rows, T tokens, H heads in G groups, K key width, V value width.
"""

from __future__ import annotations

from torch import Tensor

from ingot.kernels.linear import decayed_attention
from ingot.model.context import Context
from ingot.model.mixers.cache import StateCache
from ingot.model.mixers.recurrent import in_full_precision, real_tokens, recur


def linear_attention(
    query_BTGK: Tensor,
    key_BTGK: Tensor,
    value_BTHV: Tensor,
    decay_BTH: Tensor,
    context: Context,
    cache: StateCache | None = None,
) -> Tensor:
    """o [B, T, H, V], in float32 at least or by a kernel in bfloat16; with a cache rows go on from its state and renew it."""
    with in_full_precision(value_BTHV):
        real_BT = real_tokens(context)
        if real_BT is not None:
            value_BTHV, decay_BTH = value_BTHV * real_BT[..., None, None], decay_BTH * real_BT[..., None]
        return recur(decayed_attention, (query_BTGK, key_BTGK, value_BTHV, decay_BTH), context, cache)
