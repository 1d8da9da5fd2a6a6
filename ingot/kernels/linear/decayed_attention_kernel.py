"""Triton kernels of decayed_attention.py, forward and backward, as operators that torch.compile leaves whole.

With G the sum of decays from a chunk's beginning (in base 2), S the state before a chunk and dS the gradient of the state after
it, D_ij = 2^{G_i − G_j} for j ≤ i, e the chunk's last token:

    totals           G                                            chunk_kernel.py
    states           S ← 2^{G_e} S + Kᵀ (2^{G_e − G} ⊙ V)         states_kernel.py
                     dS ← 2^{G_e} dS + Qᵀ (2^G ⊙ dO)              the same backwards
    outputs          O = (Q Kᵀ ⊙ D) V + 2^G ⊙ Q S                 chunk by chunk, as all below
    value_gradients  dV = (K Qᵀ ⊙ Dᵀ) dO + 2^{G_e − G} ⊙ K dS
    key_gradients    dQ, dK and dG                                key_gradients_kernel.py

Memory: states are stored in the dtype of the keys, and made again in the backward pass. Sequences and chunks: chunks.py.
Shapes: T tokens of the flattened batch, H heads in G groups, K key width, V value width, S sequences, M chunks.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ingot.kernels.launch import on_device_of
from ingot.kernels.linear.chunk_kernel import Tile, find_chunk, totals
from ingot.kernels.linear.chunks import CHUNK
from ingot.kernels.linear.key_gradients_kernel import run_key_gradients
from ingot.kernels.linear.states_kernel import run_states

OUTPUTS = Tile(64, 64, warps=4, stages=3)
VALUE_GRADIENTS = Tile(64, 64, warps=4, stages=3)


@triton.jit
def _outputs(
    query,
    key,
    value,
    totals,
    states,
    out,
    starts,
    chunks,
    H: tl.constexpr,
    G: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    C: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_V: tl.constexpr,
):
    """What the tokens of a chunk read: from each other and from the state before the chunk."""
    number, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = tl.program_id(2) * BLOCK_V + tl.arange(0, BLOCK_V)
    begin, length, place = find_chunk(starts, chunks, number)
    token = place * C + tl.arange(0, C)
    inside = token < length
    shared = begin * (G * K) + head // (H // G) * K
    scores = tl.zeros([C, C], dtype=tl.float32)
    mixed = tl.zeros([C, BLOCK_V], dtype=tl.float32)
    for block in range(0, K, BLOCK_K):
        channel = block + tl.arange(0, BLOCK_K)
        at = shared + token[:, None] * (G * K) + channel[None, :]
        there = inside[:, None] & (channel < K)[None, :]
        q = tl.load(query + at, mask=there, other=0.0)
        k = tl.load(key + at, mask=there, other=0.0)
        corner = (number * H + head) * (K * V) + channel[:, None] * V + column[None, :]
        state = tl.load(states + corner, mask=(channel < K)[:, None] & (column < V)[None, :], other=0.0)
        scores = tl.dot(q, tl.trans(k), scores, input_precision="ieee")
        mixed = tl.dot(q, state, mixed, input_precision="ieee")
    total = tl.load(totals + (begin + token) * H + head, mask=inside, other=0.0)
    sees = (token[:, None] >= token[None, :]) & inside[:, None] & inside[None, :]
    scores = tl.where(sees, scores * tl.exp2(total[:, None] - total[None, :]), 0.0)
    at = ((begin + token) * H + head)[:, None] * V + column[None, :]
    there = inside[:, None] & (column < V)[None, :]
    v = tl.load(value + at, mask=there, other=0.0)
    mixed = tl.dot(scores.to(v.dtype), v, mixed * tl.exp2(total)[:, None], input_precision="ieee")
    tl.store(out + at, mixed.to(out.dtype.element_ty), mask=there)


@triton.jit
def _value_gradients(
    query,
    key,
    gradient,
    totals,
    state_gradients,
    out,
    starts,
    chunks,
    H: tl.constexpr,
    G: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    C: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_V: tl.constexpr,
):
    number, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = tl.program_id(2) * BLOCK_V + tl.arange(0, BLOCK_V)
    begin, length, place = find_chunk(starts, chunks, number)
    token = place * C + tl.arange(0, C)
    inside = token < length
    shared = begin * (G * K) + head // (H // G) * K
    scores = tl.zeros([C, C], dtype=tl.float32)  # of a key with all queries
    found = tl.zeros([C, BLOCK_V], dtype=tl.float32)
    for block in range(0, K, BLOCK_K):
        channel = block + tl.arange(0, BLOCK_K)
        at = shared + token[:, None] * (G * K) + channel[None, :]
        there = inside[:, None] & (channel < K)[None, :]
        q = tl.load(query + at, mask=there, other=0.0)
        k = tl.load(key + at, mask=there, other=0.0)
        corner = (number * H + head) * (K * V) + channel[:, None] * V + column[None, :]
        state = tl.load(state_gradients + corner, mask=(channel < K)[:, None] & (column < V)[None, :], other=0.0)
        scores = tl.dot(k, tl.trans(q), scores, input_precision="ieee")
        found = tl.dot(k, state.to(k.dtype), found, input_precision="ieee")
    total = tl.load(totals + (begin + token) * H + head, mask=inside, other=0.0)
    end = tl.load(totals + (begin + tl.minimum(place * C + C, length) - 1) * H + head)
    seen = (token[:, None] <= token[None, :]) & inside[:, None] & inside[None, :]
    scores = tl.where(seen, scores * tl.exp2(total[None, :] - total[:, None]), 0.0)
    at = ((begin + token) * H + head)[:, None] * V + column[None, :]
    there = inside[:, None] & (column < V)[None, :]
    given = tl.load(gradient + at, mask=there, other=0.0)
    found *= tl.where(inside, tl.exp2(end - total), 0.0)[:, None]
    found = tl.dot(scores.to(given.dtype), given, found, input_precision="ieee")
    tl.store(out + at, found.to(out.dtype.element_ty), mask=there)


def _by_value_blocks(
    kernel: Any, tile: Tile, inputs: tuple[Tensor, ...], out: Tensor, starts: Tensor, chunks: Tensor
) -> Tensor:
    """Launch a kernel whose programs take a chunk, a head and a block of the values' channels; inputs begin with q, k."""
    (_, groups, key_width), (_, heads, value_width) = inputs[1].shape, out.shape
    tile = tile.fit(key_width, value_width)
    grid = (len(chunks), heads, triton.cdiv(value_width, tile.values))
    with on_device_of(out):
        kernel[grid](
            *inputs,
            out,
            starts,
            chunks,
            H=heads,
            G=groups,
            K=key_width,
            V=value_width,
            C=CHUNK,
            BLOCK_K=tile.keys,
            BLOCK_V=tile.values,
            num_warps=tile.warps,
            num_stages=tile.stages,
        )
    return out


def run_outputs(
    query_TGK: Tensor,
    key_TGK: Tensor,
    value_THV: Tensor,
    totals_TH: Tensor,
    states_MHKV: Tensor,
    starts: Tensor,
    chunks: Tensor,
    tile: Tile | None = None,
) -> Tensor:
    """O [T, H, V]."""
    inputs = (query_TGK, key_TGK, value_THV, totals_TH, states_MHKV)
    return _by_value_blocks(_outputs, tile or OUTPUTS, inputs, torch.empty_like(value_THV), starts, chunks)


def run_value_gradients(
    query_TGK: Tensor,
    key_TGK: Tensor,
    gradient_THV: Tensor,
    totals_TH: Tensor,
    state_gradients_MHKV: Tensor,
    starts: Tensor,
    chunks: Tensor,
    tile: Tile | None = None,
) -> Tensor:
    """dV [T, H, V]."""
    inputs = (query_TGK, key_TGK, gradient_THV, totals_TH, state_gradients_MHKV)
    return _by_value_blocks(
        _value_gradients, tile or VALUE_GRADIENTS, inputs, torch.empty_like(gradient_THV), starts, chunks
    )


@torch.library.custom_op("ingot::decayed_attention", mutates_args=())
def forward(
    query_TGK: Tensor,
    key_TGK: Tensor,
    value_THV: Tensor,
    decay_TH: Tensor,
    first: Tensor | None,
    starts: Tensor,
    chunks: Tensor,
    offsets: Tensor,
    wants_last: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """o [T, H, V], the states after the sequences [S, H, K, V] (empty if not wanted), and G [T, H]."""
    query, key, value, decay = (x.contiguous() for x in (query_TGK, key_TGK, value_THV, decay_TH))
    summed = totals(decay, starts, chunks)
    states, last = run_states(
        key, value, summed, first, starts, chunks, offsets, backwards=False, wants_last=wants_last
    )
    out = run_outputs(query, key, value, summed, states, starts, chunks)
    return out, summed.new_empty(0) if last is None else last, summed


@forward.register_fake
def _(
    query_TGK: Tensor,
    key_TGK: Tensor,
    value_THV: Tensor,
    decay_TH: Tensor,
    first: Tensor | None,
    starts: Tensor,
    chunks: Tensor,
    offsets: Tensor,
    wants_last: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    summed = decay_TH.new_empty(decay_TH.shape, dtype=torch.float32)
    shape = (starts.shape[0] - 1, *value_THV.shape[1:2], key_TGK.shape[2], value_THV.shape[2])
    return value_THV.new_empty(value_THV.shape), summed.new_empty(shape if wants_last else (0,)), summed


@torch.library.custom_op("ingot::decayed_attention_backward", mutates_args=())
def backward(
    query_TGK: Tensor,
    key_TGK: Tensor,
    value_THV: Tensor,
    totals_TH: Tensor,
    first: Tensor | None,
    starts: Tensor,
    chunks: Tensor,
    offsets: Tensor,
    gradient_THV: Tensor,
    last_gradient: Tensor | None,
    wants_decay: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of queries, keys, values, decays (empty if not wanted) and of the first states (empty without them)."""
    query, key, value, gradient = (x.contiguous() for x in (query_TGK, key_TGK, value_THV, gradient_THV))
    at = (starts, chunks)
    states, _ = run_states(key, value, totals_TH, first, *at, offsets, backwards=False, wants_last=False)
    after, of_first = run_states(
        query,
        gradient,
        totals_TH,
        None if last_gradient is None else last_gradient.contiguous(),
        *at,
        offsets,
        backwards=True,
        wants_last=first is not None,
    )
    of_query, of_key, _, of_total = run_key_gradients(
        query, key, value, gradient, totals_TH, states, after, *at, wants_total=wants_decay
    )
    of_value = run_value_gradients(query, key, gradient, totals_TH, after, *at)
    empty = totals_TH.new_empty(0)
    of_decay = empty if of_total is None else totals(of_total, *at, backwards=True)
    return of_query, of_key, of_value, of_decay, empty.clone() if of_first is None else of_first


@backward.register_fake
def _(
    query_TGK: Tensor,
    key_TGK: Tensor,
    value_THV: Tensor,
    totals_TH: Tensor,
    first: Tensor | None,
    starts: Tensor,
    chunks: Tensor,
    offsets: Tensor,
    gradient_THV: Tensor,
    last_gradient: Tensor | None,
    wants_decay: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    of_first = totals_TH.new_empty((0,) if first is None else first.shape)
    of_decay = totals_TH.new_empty(totals_TH.shape if wants_decay else (0,))
    made = (x.new_empty(x.shape) for x in (query_TGK, key_TGK, value_THV))
    return *made, of_decay, of_first  # type: ignore[return-value]


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    query, key, value, _, first, starts, chunks, offsets, ctx.wants_last = inputs
    ctx.save_for_backward(query, key, value, output[2], first, starts, chunks, offsets)
    ctx.set_materialize_grads(False)


def _differentiate(
    ctx: Any, gradient: Tensor | None, last_gradient: Tensor | None, _: Tensor | None
) -> tuple[Any, ...]:
    query, key, value, summed, first, starts, chunks, offsets = ctx.saved_tensors
    if gradient is None:
        gradient = torch.zeros_like(value)
    wants_decay = ctx.needs_input_grad[3]
    given = (gradient, last_gradient if ctx.wants_last else None, wants_decay)
    of_query, of_key, of_value, of_decay, of_first = backward(
        query, key, value, summed, first, starts, chunks, offsets, *given
    )
    of_first = None if first is None else of_first
    return of_query, of_key, of_value, of_decay if wants_decay else None, of_first, None, None, None, None


forward.register_autograd(_differentiate, setup_context=_remember)
