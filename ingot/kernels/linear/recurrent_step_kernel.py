"""Triton kernel of recurrent_step.py. A program takes BLOCK columns of one head's state.

Shapes: B rows, N slots, H heads in G groups, K key width, V value width, W decays per head (1 or K).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ingot.kernels.launch import on_device_of, power_of_two

BLOCK = 32


@triton.jit
def _step(
    states,
    slots,
    positions,
    query,
    key,
    value,
    decay,
    beta,
    out,
    position_stride,
    H: tl.constexpr,
    G: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    W: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK: tl.constexpr,
    HAS_BETA: tl.constexpr,
):
    row, head = (tl.program_id(0) // H).to(tl.int64), tl.program_id(0) % H
    channel, column = tl.arange(0, BLOCK_K), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    fits = (channel < K)[:, None] & (column < V)[None, :]
    slot = tl.load(slots + row).to(tl.int64)
    begun = tl.load(positions + row * position_stride) != 0
    here = states + (slot * H + head) * (K * V) + channel[:, None] * V + column[None, :]
    state = tl.load(here, mask=fits & begun, other=0.0)
    shared = (row * G + head // (H // G)) * K + channel
    q = tl.load(query + shared, mask=channel < K, other=0.0)
    k = tl.load(key + shared, mask=channel < K, other=0.0)
    v = tl.load(value + (row * H + head) * V + column, mask=column < V, other=0.0)
    if W == 1:
        state *= tl.exp(tl.load(decay + row * H + head))
    else:
        state *= tl.exp(tl.load(decay + (row * H + head) * K + channel, mask=channel < K, other=0.0))[:, None]
    if HAS_BETA:
        v = tl.load(beta + row * H + head) * (v - tl.sum(state * k[:, None], axis=0))
    state += k[:, None] * v[None, :]
    tl.store(here, state, mask=fits)
    tl.store(out + (row * H + head) * V + column, tl.sum(state * q[:, None], axis=0), mask=column < V)


def launch(
    states_NHKV: Tensor,
    slots_B: Tensor,
    positions_B: Tensor,
    query_BGK: Tensor,
    key_BGK: Tensor,
    value_BHV: Tensor,
    decay: Tensor,
    beta_BH: Tensor | None,
) -> Tensor:
    """o [B, H, V]; the states of the slots are renewed."""
    (rows, heads, value_width), (_, groups, key_width) = value_BHV.shape, key_BGK.shape
    out_BHV = torch.empty(rows, heads, value_width, dtype=value_BHV.dtype, device=value_BHV.device)
    with on_device_of(out_BHV):
        _step[(rows * heads, triton.cdiv(value_width, BLOCK))](
            states_NHKV,
            slots_B.contiguous(),
            positions_B,
            query_BGK.contiguous(),
            key_BGK.contiguous(),
            value_BHV.contiguous(),
            decay.contiguous(),
            None if beta_BH is None else beta_BH.contiguous(),
            out_BHV,
            positions_B.stride(0),
            H=heads,
            G=groups,
            K=key_width,
            V=value_width,
            W=decay.shape[2] if decay.dim() == 3 else 1,
            BLOCK_K=power_of_two(key_width),
            BLOCK=BLOCK,
            HAS_BETA=beta_BH is not None,
            num_warps=4,
        )
    return out_BHV
