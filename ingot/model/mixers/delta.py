"""The gated delta rule over the rows of a pass (kernels/linear/delta_rule.py), with documents and caches.

Shapes: B rows, T tokens, H heads in G groups, K key width, V value width, W decays per head (1 or K).
"""

from __future__ import annotations

import torch
from torch import Tensor

from ingot.kernels.linear import delta_rule as rule
from ingot.model.context import Context
from ingot.model.mixers.cache import StateCache
from ingot.model.mixers.recurrent import in_full_precision, precise, real_tokens, recur

UNIT_EPSILON = 1e-6  # inside the root of `unit`


def unit(x: Tensor) -> Tensor:
    """Queries and keys of length one over the last axis, in float32 at least."""
    x = precise(x)
    return x * torch.rsqrt(x.square().sum(dim=-1, keepdim=True) + UNIT_EPSILON)


def delta_rule(
    query_BTGK: Tensor,
    key_BTGK: Tensor,
    value_BTHV: Tensor,
    decay_BTHW: Tensor,
    beta_BTH: Tensor,
    context: Context,
    cache: StateCache | None = None,
) -> Tensor:
    """o [B, T, H, V], in float32 at least or by a kernel in bfloat16; with a cache rows go on from its state and renew it."""
    with in_full_precision(value_BTHV):
        real_BT = real_tokens(context)
        if real_BT is not None:
            decay_BTHW, beta_BTH = decay_BTHW * real_BT[..., None, None], beta_BTH * real_BT[..., None]
        return recur(rule, (query_BTGK, key_BTGK, value_BTHV, decay_BTHW, beta_BTH), context, cache)
