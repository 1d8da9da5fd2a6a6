"""Triton kernels of decayed_attention.py, forward and backward, as operators that torch.compile leaves whole.

With G the sum of decays from a chunk's beginning (in base 2), S the state before a chunk and dS the gradient of the state after
it, D_ij = 2^{G_i − G_j} for j ≤ i, e the chunk's last token:

    totals           G                                            chunk_kernel.py
    states           S ← 2^{G_e} S + Kᵀ (2^{G_e − G} ⊙ V)         a loop over a sequence's chunks; each S is stored
                     dS ← 2^{G_e} dS + Qᵀ (2^G ⊙ dO)              the same loop backwards
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

from ingot.kernels.chunk_kernel import Tile, find_chunk, totals
from ingot.kernels.chunks import CHUNK
from ingot.kernels.key_gradients_kernel import run_key_gradients
from ingot.kernels.launch import on_device_of

STATES = Tile(64, 64, warps=4, stages=3)
STATES_FEW = Tile(32, 64, warps=4, stages=3)  # where few sequences leave most of the device idle
FEW = 32  # sequences · heads
OUTPUTS = Tile(64, 64, warps=4, stages=3)
VALUE_GRADIENTS = Tile(64, 64, warps=4, stages=3)


@triton.jit
def _states(
    left,
    right,
    totals,
    first,
    states,
    last,
    starts,
    offsets,
    H: tl.constexpr,
    G: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    C: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_V: tl.constexpr,
    REVERSED: tl.constexpr,
    HAS_FIRST: tl.constexpr,
    HAS_LAST: tl.constexpr,
):
    """The state before each chunk (left = keys, right = values); reversed, its gradient after each (queries, dO)."""
    KEY_BLOCKS: tl.constexpr = triton.cdiv(K, BLOCK_K)
    VALUE_BLOCKS: tl.constexpr = triton.cdiv(V, BLOCK_V)
    channel = tl.program_id(0) % KEY_BLOCKS * BLOCK_K + tl.arange(0, BLOCK_K)
    column = tl.program_id(0) // KEY_BLOCKS % VALUE_BLOCKS * BLOCK_V + tl.arange(0, BLOCK_V)
    item = tl.program_id(0) // (KEY_BLOCKS * VALUE_BLOCKS)  # sequence and head; the grid's other axes end at 65,535
    sequence, head = (item // H).to(tl.int64), item % H
    begin = tl.load(starts + sequence).to(tl.int64)
    length = tl.load(starts + sequence + 1).to(tl.int64) - begin
    place = tl.load(offsets + sequence).to(tl.int64)
    count = tl.cdiv(length, C).to(tl.int32)
    corner = channel[:, None] * V + column[None, :]
    fits = (channel < K)[:, None] & (column < V)[None, :]
    state = tl.zeros([BLOCK_K, BLOCK_V], dtype=tl.float32)
    if HAS_FIRST:
        state += tl.load(first + (sequence * H + head) * (K * V) + corner, mask=fits, other=0.0).to(tl.float32)
    left += begin * (G * K) + head // (H // G) * K
    right += (begin * H + head) * V
    totals += begin * H + head
    states += (place * H + head) * (K * V)
    for step in range(count):
        if REVERSED:
            chunk = count - 1 - step
        else:
            chunk = step
        here = states + chunk * tl.full((), H * K * V, tl.int64) + corner
        tl.store(here, state.to(states.dtype.element_ty), mask=fits)
        token = (chunk * C + tl.arange(0, C)).to(tl.int64)
        inside = token < length
        total = tl.load(totals + token * H, mask=inside, other=0.0)
        end = tl.load(totals + (tl.minimum(chunk * C + C, length) - 1) * H)
        x = tl.load(
            left + channel[:, None] + token[None, :] * (G * K), mask=(channel < K)[:, None] & inside[None, :], other=0.0
        )
        y = tl.load(
            right + token[:, None] * (H * V) + column[None, :], mask=inside[:, None] & (column < V)[None, :], other=0.0
        )
        if REVERSED:
            y = y * tl.exp2(total)[:, None]
        else:
            y = y * tl.exp2(end - total)[:, None]
        state = tl.dot(x, y.to(x.dtype), state * tl.exp2(end), input_precision="ieee")
    if HAS_LAST:
        tl.store(last + (sequence * H + head) * (K * V) + corner, state, mask=fits)


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


def run_states(
    left_TGK: Tensor,
    right_THV: Tensor,
    totals_TH: Tensor,
    first: Tensor | None,
    starts: Tensor,
    chunks: Tensor,
    offsets: Tensor,
    *,
    backwards: bool,
    wants_last: bool,
    tile: Tile | None = None,
) -> tuple[Tensor, Tensor | None]:
    """States before the chunks [M, H, K, V], and the state [S, H, K, V] after the last; backwards, their gradients."""
    (_, groups, key_width), (_, heads, value_width) = left_TGK.shape, right_THV.shape
    sequences = len(starts) - 1
    tile = (tile or (STATES_FEW if sequences * heads <= FEW else STATES)).fit(key_width, value_width)
    states = left_TGK.new_empty(len(chunks), heads, key_width, value_width)
    last = totals_TH.new_empty(sequences, heads, key_width, value_width) if wants_last else None
    grid = (sequences * heads * triton.cdiv(key_width, tile.keys) * triton.cdiv(value_width, tile.values),)
    with on_device_of(states):
        _states[grid](
            left_TGK,
            right_THV,
            totals_TH,
            first,
            states,
            last,
            starts,
            offsets,
            H=heads,
            G=groups,
            K=key_width,
            V=value_width,
            C=CHUNK,
            BLOCK_K=tile.keys,
            BLOCK_V=tile.values,
            REVERSED=backwards,
            HAS_FIRST=first is not None,
            HAS_LAST=wants_last,
            num_warps=tile.warps,
            num_stages=tile.stages,
        )
    return states, last


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
