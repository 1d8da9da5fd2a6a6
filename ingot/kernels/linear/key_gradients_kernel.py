"""The Triton kernel for gradients of queries and keys, for linear attention with decays and for the delta rule.

With G the sum of decays from a chunk's beginning (in base 2), S the state before a chunk and dS the gradient of the state after
it, D_ij = 2^{G_i − G_j} for j ≤ i, e the chunk's last token:

    E = dO Vᵀ ⊙ D
    dQ = E K + 2^G ⊙ dO Sᵀ        dK = Eᵀ Q + 2^{G_e − G} ⊙ V dSᵀ
    dG = q·dq − k·dk, and for the last token besides 2^{G_e} ⟨S, dS⟩ + Σ_i k_i·(2^{G_e − G_i} v_i dSᵀ)
    dW = −dU Sᵀ                   for the delta rule, whose values V are the errors U

A program has a chunk, some channels of the keys and one head of a group, or several, and makes one product after the other: with
all sums in registers at once, hundreds of bytes a thread were spilled to memory (tests/kernels/compile_for_hopper.py). What the
heads of a group share is added up in registers where they fit, and afterwards for the rest. A head is loaded at once, so that
memory is waited for once.

Eᵀ is where Triton 3.4 to 3.7.0 goes wrong on Hopper: a product's result that is transposed in registers and becomes the left side
of the next product is misread for some tiles (github.com/fla-org/flash-linear-attention/issues/640). So it is computed by a
product of its own, V dOᵀ ⊙ Dᵀ.

Shapes: T tokens of the flattened batch, H heads in G groups, K key width, V value width, M chunks.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from ingot.kernels.launch import on_device_of, power_of_two
from ingot.kernels.linear.chunk_kernel import find_chunk
from ingot.kernels.linear.chunks import CHUNK


class GradientTile(NamedTuple):
    """The share of a program."""

    keys: int  # channels of the keys
    heads: int  # of a group, whose gradients of queries and keys are added up in registers
    warps: int
    stages: int  # of the pipeline over heads


KEY_GRADIENTS = GradientTile(64, 1, warps=4, stages=1)
GROUP_GRADIENTS = GradientTile(
    32, 8, warps=4, stages=2
)  # where a group has several heads: Mamba-2's have eight and more
SLOPE_GRADIENTS = GradientTile(64, 1, warps=4, stages=1)  # with dW, for the delta rule
WIDE_VALUES = GradientTile(
    32, 1, warps=4, stages=1
)  # values of more than 128 channels, all of which are loaded at once


@triton.jit(do_not_specialize=["tokens"])
def _key_gradients(
    query,
    key,
    value,
    gradient,
    error_gradient,
    totals,
    states,
    state_gradients,
    of_query,  # [T, H / HEADS, K], as of_key
    of_key,
    of_slope,
    of_total,  # [BLOCKS, T, H]
    starts,
    chunks,
    tokens,
    H: tl.constexpr,
    G: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    C: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_V: tl.constexpr,  # holds V
    BLOCKS: tl.constexpr,  # of the keys' channels
    HEADS: tl.constexpr,
    HAS_SLOPE: tl.constexpr,
    HAS_TOTAL: tl.constexpr,
):
    # programs of a chunk follow each other: they read the same tokens, the second time out of the cache
    program = tl.program_id(0).to(tl.int64)
    part, share, number = program % BLOCKS, program // BLOCKS % (H // HEADS), program // (BLOCKS * (H // HEADS))
    first = share * HEADS
    begin, length, place = find_chunk(starts, chunks, number)
    begin += place * C
    count = tl.minimum(length - place * C, C).to(tl.int32)
    row, channel, column = tl.arange(0, C), tl.arange(0, BLOCK_K), tl.arange(0, BLOCK_V)
    inside, narrow = row < count, part.to(tl.int32) * BLOCK_K + channel < K
    there = inside[:, None] & narrow[None, :]
    fits = inside[:, None] & (column < V)[None, :]
    whole = narrow[:, None] & (column < V)[None, :]

    # one address a tensor in 64 bits, and distances from it in 32
    shared = (begin * G + first // (H // G)) * K + part * BLOCK_K
    query += shared
    key += shared
    value += (begin * H + first) * V
    gradient += (begin * H + first) * V
    totals += begin * H + first
    states += ((number * H + first) * K + part * BLOCK_K) * V
    state_gradients += ((number * H + first) * K + part * BLOCK_K) * V
    if HAS_SLOPE:
        error_gradient += (begin * H + first) * V
        of_slope += (begin * H + first) * K + part * BLOCK_K
    if HAS_TOTAL:
        of_total += (part * tokens + begin) * H + first
    shared = row[:, None] * (G * K) + channel[None, :]
    at = row[:, None] * (H * V) + column[None, :]
    corner = channel[:, None] * V + column[None, :]

    all_q = tl.zeros([C, BLOCK_K], dtype=tl.float32)
    all_k = tl.zeros([C, BLOCK_K], dtype=tl.float32)
    for member in range(HEADS):
        state = tl.load(states + member * (K * V) + corner, mask=whole, other=0.0)
        after = tl.load(state_gradients + member * (K * V) + corner, mask=whole, other=0.0)
        v = tl.load(value + member * V + at, mask=fits, other=0.0)
        given = tl.load(gradient + member * V + at, mask=fits, other=0.0)
        if HAS_SLOPE:
            error = tl.load(error_gradient + member * V + at, mask=fits, other=0.0)
        k = tl.load(key + shared, mask=there, other=0.0)
        q = tl.load(query + shared, mask=there, other=0.0)
        total = tl.load(totals + member + row * H, mask=inside, other=0.0)
        end = tl.load(totals + member + (count - 1) * H, mask=count > 0, other=0.0)
        if HAS_TOTAL:
            through = tl.sum(tl.sum(state.to(tl.float32) * after.to(tl.float32), axis=1), axis=0) * tl.exp2(end)
        if HAS_SLOPE:
            dw = tl.dot(error, tl.trans(state), input_precision="ieee")
            own = row[:, None] * (H * K) + channel[None, :]
            tl.store(of_slope + member * K + own, (-dw).to(of_slope.dtype.element_ty), mask=there)

        dk = tl.dot(v, tl.trans(after), input_precision="ieee")
        dk *= tl.where(inside, tl.exp2(end - total), 0.0)[:, None]
        if HAS_TOTAL:
            at_end = through + tl.sum(tl.sum(dk * k, axis=1), axis=0)
        weights = tl.dot(v, tl.trans(given), input_precision="ieee")
        seen = (row[:, None] <= row[None, :]) & inside[None, :]
        weights = tl.where(seen, weights * tl.exp2(total[None, :] - total[:, None]), 0.0)
        dk = tl.dot(weights.to(q.dtype), q, dk, input_precision="ieee")
        if HAS_TOTAL:
            found = -tl.sum(dk * k, axis=1)
        all_k += dk

        dq = tl.dot(given, tl.trans(state), input_precision="ieee")
        dq *= tl.exp2(total)[:, None]
        weights = tl.dot(given, tl.trans(v), input_precision="ieee")
        sees = (row[:, None] >= row[None, :]) & inside[:, None]
        weights = tl.where(sees, weights * tl.exp2(total[:, None] - total[None, :]), 0.0)
        dq = tl.dot(weights.to(k.dtype), k, dq, input_precision="ieee")
        if HAS_TOTAL:
            found += tl.sum(dq * q, axis=1)
            found = tl.where(row == count - 1, found + at_end, found)
            tl.store(of_total + member + row * H, found, mask=inside)
        all_q += dq

    mine = (begin * (H // HEADS) + share) * K + part * BLOCK_K
    to = row[:, None] * (H // HEADS * K) + channel[None, :]
    tl.store(of_query + mine + to, all_q.to(of_query.dtype.element_ty), mask=there)
    tl.store(of_key + mine + to, all_k.to(of_key.dtype.element_ty), mask=there)


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
    tile: GradientTile | None = None,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """dQ and dK [T, G, K], dW [T, H, K] if the errors' gradient is given, dG [T, H] if wanted."""
    (tokens, groups, key_width), (_, heads, value_width) = key_TGK.shape, value_THV.shape
    if tile is None:
        tile = KEY_GRADIENTS if heads == groups else GROUP_GRADIENTS
        tile = tile if error_gradient_THV is None else SLOPE_GRADIENTS
        tile = WIDE_VALUES if value_width > 128 else tile
    block, together = min(tile.keys, power_of_two(key_width)), math.gcd(tile.heads, heads // groups)
    blocks, shares = triton.cdiv(key_width, block), heads // together
    of_query, of_key = (key_TGK.new_empty(tokens, shares, key_width) for _ in range(2))
    of_slope = None if error_gradient_THV is None else key_TGK.new_empty(tokens, heads, key_width)
    of_total = totals_TH.new_empty(blocks, tokens, heads) if wants_total else None
    with on_device_of(of_query):
        _key_gradients[(len(chunks) * shares * blocks,)](
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
            BLOCK_K=block,
            BLOCK_V=power_of_two(value_width),
            BLOCKS=blocks,
            HEADS=together,
            HAS_SLOPE=of_slope is not None,
            HAS_TOTAL=wants_total,
            num_warps=tile.warps,
            num_stages=tile.stages,
        )
    if shares > groups:
        of_query, of_key = (x.unflatten(1, (groups, -1)).sum(dim=2) for x in (of_query, of_key))
    if of_total is not None:
        of_total = of_total[0] if blocks == 1 else of_total.sum(dim=0)
    return of_query, of_key, of_slope, of_total
