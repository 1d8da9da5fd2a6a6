"""The Triton kernel for gradients of queries and keys, for linear attention with decays and for the delta rule.

With G the sum of decays from a chunk's beginning (in base 2), S the state before a chunk and dS the gradient of the state after
it, D_ij = 2^{G_i − G_j} for j ≤ i, e the chunk's last token:

    E = dO Vᵀ ⊙ D
    dQ = E K + 2^G ⊙ dO Sᵀ        dK = Eᵀ Q + 2^{G_e − G} ⊙ V dSᵀ
    dG = q·dq − k·dk, and for the last token besides 2^{G_e} ⟨S, dS⟩ + Σ_i k_i·(2^{G_e − G_i} v_i dSᵀ)
    dW = −dU Sᵀ                   for the delta rule, whose values V are the errors U

A program goes through all heads of a group, so the gradients of what they share are added in registers.

Eᵀ is where Triton 3.4 to 3.7.0 goes wrong on Hopper: a product's result that is transposed in registers and becomes the left side
of the next product is misread for some tiles (github.com/fla-org/flash-linear-attention/issues/640). So it is computed by a
product of its own, V dOᵀ ⊙ Dᵀ.

Shapes: T tokens of the flattened batch, H heads in G groups, K key width, V value width, M chunks.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from ingot.kernels.chunk_kernel import Tile, find_chunk
from ingot.kernels.chunks import CHUNK
from ingot.kernels.launch import on_device_of

KEY_GRADIENTS = Tile(64, 64, warps=4, stages=2)
SLOPE_GRADIENTS = Tile(64, 64, warps=4, stages=2)  # key_gradients with dW, for the delta rule


@triton.jit
def _key_gradients(
    query,
    key,
    value,
    gradient,
    error_gradient,
    totals,
    states,
    state_gradients,
    of_query,
    of_key,
    of_slope,
    of_total,
    starts,
    chunks,
    tokens,
    H: tl.constexpr,
    G: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    C: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_V: tl.constexpr,
    HAS_SLOPE: tl.constexpr,
    HAS_TOTAL: tl.constexpr,
):
    number, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    channel = tl.program_id(2) * BLOCK_K + tl.arange(0, BLOCK_K)
    begin, length, place = find_chunk(starts, chunks, number)
    token = place * C + tl.arange(0, C)
    inside = token < length
    ends = tl.minimum(place * C + C, length) - 1
    sees = (token[:, None] >= token[None, :]) & inside[:, None] & inside[None, :]
    seen = (token[:, None] <= token[None, :]) & inside[:, None] & inside[None, :]
    shared = (begin + token)[:, None] * (G * K) + group * K + channel[None, :]
    there = inside[:, None] & (channel < K)[None, :]
    q = tl.load(query + shared, mask=there, other=0.0)
    k = tl.load(key + shared, mask=there, other=0.0)
    all_q = tl.zeros([C, BLOCK_K], dtype=tl.float32)
    all_k = tl.zeros([C, BLOCK_K], dtype=tl.float32)
    for member in range(H // G):
        head = group * (H // G) + member
        dq = tl.zeros([C, BLOCK_K], dtype=tl.float32)
        dk = tl.zeros([C, BLOCK_K], dtype=tl.float32)
        dw = tl.zeros([C, BLOCK_K], dtype=tl.float32)
        weights = tl.zeros([C, C], dtype=tl.float32)
        weights_t = tl.zeros([C, C], dtype=tl.float32)
        through = tl.zeros([BLOCK_K], dtype=tl.float32)
        for block in range(0, V, BLOCK_V):
            column = block + tl.arange(0, BLOCK_V)
            at = ((begin + token) * H + head)[:, None] * V + column[None, :]
            fits = inside[:, None] & (column < V)[None, :]
            v = tl.load(value + at, mask=fits, other=0.0)
            given = tl.load(gradient + at, mask=fits, other=0.0)
            corner = (number * H + head) * (K * V) + channel[:, None] * V + column[None, :]
            whole = (channel < K)[:, None] & (column < V)[None, :]
            state = tl.load(states + corner, mask=whole, other=0.0)
            after = tl.load(state_gradients + corner, mask=whole, other=0.0)
            if HAS_TOTAL:
                through += tl.sum(state.to(tl.float32) * after.to(tl.float32), axis=1)
            weights = tl.dot(given, tl.trans(v), weights, input_precision="ieee")
            weights_t = tl.dot(v, tl.trans(given), weights_t, input_precision="ieee")
            dq = tl.dot(given, tl.trans(state), dq, input_precision="ieee")
            dk = tl.dot(v, tl.trans(after), dk, input_precision="ieee")
            if HAS_SLOPE:
                error = tl.load(error_gradient + at, mask=fits, other=0.0)
                dw = tl.dot(error, tl.trans(state), dw, input_precision="ieee")
        if HAS_SLOPE:
            own = ((begin + token) * H + head)[:, None] * K + channel[None, :]
            tl.store(of_slope + own, (-dw).to(of_slope.dtype.element_ty), mask=there)
        total = tl.load(totals + (begin + token) * H + head, mask=inside, other=0.0)
        end = tl.load(totals + (begin + ends) * H + head)
        dq *= tl.exp2(total)[:, None]
        dk *= tl.where(inside, tl.exp2(end - total), 0.0)[:, None]
        if HAS_TOTAL:
            at_end = tl.sum(through, axis=0) * tl.exp2(end) + tl.sum(tl.sum(dk * k, axis=1), axis=0)
        weights = tl.where(sees, weights * tl.exp2(total[:, None] - total[None, :]), 0.0).to(k.dtype)
        dq = tl.dot(weights, k, dq, input_precision="ieee")
        weights_t = tl.where(seen, weights_t * tl.exp2(total[None, :] - total[:, None]), 0.0).to(q.dtype)
        dk = tl.dot(weights_t, q, dk, input_precision="ieee")
        if HAS_TOTAL:
            found = tl.sum(dq * q, axis=1) - tl.sum(dk * k, axis=1)
            found = tl.where(token == ends, found + at_end, found)
            part = tl.program_id(2).to(tl.int64) * tokens
            tl.store(of_total + (part + begin + token) * H + head, found, mask=inside)
        all_q += dq
        all_k += dk
    tl.store(of_query + shared, all_q.to(of_query.dtype.element_ty), mask=there)
    tl.store(of_key + shared, all_k.to(of_key.dtype.element_ty), mask=there)


def run_key_gradients(
    query_TGK: Tensor,
    key_TGK: Tensor,
    value_THV: Tensor,
    gradient_THV: Tensor,
    totals_TH: Tensor,
    states_MHKV: Tensor,
    state_gradients_MHKV: Tensor,
    starts: Tensor,
    chunks: Tensor,
    *,
    error_gradient_THV: Tensor | None = None,
    wants_total: bool = True,
    tile: Tile | None = None,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """dQ and dK [T, G, K], dW [T, H, K] if the errors' gradient is given, dG [T, H] if wanted."""
    (tokens, groups, key_width), (_, heads, value_width) = key_TGK.shape, value_THV.shape
    tile = tile or (KEY_GRADIENTS if error_gradient_THV is None else SLOPE_GRADIENTS)
    tile = tile.fit(key_width, value_width)
    blocks = triton.cdiv(key_width, tile.keys)
    of_query, of_key = torch.empty_like(query_TGK), torch.empty_like(key_TGK)
    of_slope = None if error_gradient_THV is None else key_TGK.new_empty(tokens, heads, key_width)
    of_total = totals_TH.new_empty(blocks, tokens, heads) if wants_total else None
    with on_device_of(of_query):
        _key_gradients[(len(chunks), groups, blocks)](
            query_TGK,
            key_TGK,
            value_THV,
            gradient_THV,
            error_gradient_THV,
            totals_TH,
            states_MHKV,
            state_gradients_MHKV,
            of_query,
            of_key,
            of_slope,
            of_total,
            starts,
            chunks,
            tokens,
            H=heads,
            G=groups,
            K=key_width,
            V=value_width,
            C=CHUNK,
            BLOCK_K=tile.keys,
            BLOCK_V=tile.values,
            HAS_SLOPE=of_slope is not None,
            HAS_TOTAL=wants_total,
            num_warps=tile.warps,
            num_stages=tile.stages,
        )
    return of_query, of_key, of_slope, None if of_total is None else of_total.sum(dim=0)
