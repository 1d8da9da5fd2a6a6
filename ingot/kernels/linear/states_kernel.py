"""Triton kernels for the states between chunks of linear attention with decays, and for their gradients.

With G the sum of decays from a chunk's beginning (in base 2) and e the chunk's last token:

    S ← 2^{G_e} S + Kᵀ (2^{G_e − G} ⊙ V)        the state before each chunk is stored
    dS ← 2^{G_e} dS + Qᵀ (2^G ⊙ dO)             reversed: the gradient of the state after each chunk

A program has a head and a tile of its state, and walks through a sequence. One long sequence makes few programs with a long way
each, which wait for memory while most of the device is idle. So long sequences are cut into parts of PART chunks:

    borders   what a part adds to a state of zeros, and the product of its decays; all parts at the same time
    join      the state at each border, a short loop over borders
    parts     the states between the chunks of a part, from the state at its border on; all parts at the same time

Keys and values are read twice then; less where heads forget, because only what is not FORGOTTEN at the border is read for it.

A sequence is cut at multiples of PART of its own chunks: what becomes of a document does not depend on where it lies. The host
does not know the parts. It launches programs for windows of PART chunks, in the order of the chunks of all sequences (chunks.py):

    chunks        a0 a1 a2 | a3 a4 a5 | a6 b0 b1 | b2 b3 b4 | b5 c0 c1          PART = 3
    window        0          1          2          3          4
    border in it  none       a3         a6         b3         none

A window has one border at most: those of a sequence are PART chunks apart, and so is its first one from its beginning.

Shapes: T tokens of the flattened batch, H heads in G groups, K key width, V value width, S sequences, M chunks, W windows.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from ingot.kernels.launch import on_device_of
from ingot.kernels.linear.chunk_kernel import Tile
from ingot.kernels.linear.chunks import CHUNK

STATES = Tile(64, 64, warps=4, stages=3)
STATES_FEW = Tile(32, 64, warps=4, stages=3)  # where few sequences leave most of the device idle
FEW = 32  # sequences · heads
PARTS = Tile(64, 64, warps=4, stages=3)
PART = 64  # chunks, a power of two
CUT = 32  # sequences · heads up to which sequences are cut into parts, if they are long:
LONG = 512  # chunks, on average
FORGOTTEN = 64.0  # what decays by 2^−64 is as good as nothing beside float32's 24 bits
JOIN = 512  # entries of a state


@triton.jit
def _walk(
    state,
    left,
    right,
    totals,
    states,
    begin,
    length,
    place,
    at,
    count,
    head,
    channel,
    column,
    H: tl.constexpr,
    G: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    C: tl.constexpr,
    REVERSED: tl.constexpr,
    STORES: tl.constexpr,
):
    """The state behind `count` chunks of a sequence from its chunk `at` on (reversed: back to it)."""
    corner = channel[:, None] * V + column[None, :]
    fits = (channel < K)[:, None] & (column < V)[None, :]
    left += begin * (G * K) + head // (H // G) * K
    right += (begin * H + head) * V
    totals += begin * H + head
    if STORES:
        states += (place * H + head) * (K * V)
    for step in range(count):
        if REVERSED:
            chunk = at + (count - 1 - step)
        else:
            chunk = at + step
        if STORES:
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
    return state


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
    given = (left, right, totals, states, begin, length, place, 0, count, head, channel, column)
    state = _walk(state, *given, H, G, K, V, C, REVERSED, True)
    if HAS_LAST:
        tl.store(last + (sequence * H + head) * (K * V) + corner, state, mask=fits)


@triton.jit
def _borders(
    left,
    right,
    totals,
    first,
    borders,
    decays,
    starts,
    chunks,
    H: tl.constexpr,
    G: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    C: tl.constexpr,
    PART: tl.constexpr,
    FORGOTTEN: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_V: tl.constexpr,
    REVERSED: tl.constexpr,
    HAS_FIRST: tl.constexpr,
):
    """For the border in each window, what the part before it (reversed: behind it) adds to the state, and its decay.

    A part that has no other before it starts from the sequence's first state, and its decay counts as 0; so does that of a
    window without a border.
    """
    KEY_BLOCKS: tl.constexpr = triton.cdiv(K, BLOCK_K)
    VALUE_BLOCKS: tl.constexpr = triton.cdiv(V, BLOCK_V)
    channel = tl.program_id(0) % KEY_BLOCKS * BLOCK_K + tl.arange(0, BLOCK_K)
    column = tl.program_id(0) // KEY_BLOCKS % VALUE_BLOCKS * BLOCK_V + tl.arange(0, BLOCK_V)
    item = tl.program_id(0) // (KEY_BLOCKS * VALUE_BLOCKS)  # border and head
    head, number = item % H, (item // H + 1) * PART - 1  # the last chunk before the window
    sequence = tl.load(chunks + number * 2).to(tl.int64)
    at = tl.load(chunks + number * 2 + 1) // PART * PART  # its part begins there
    begin = tl.load(starts + sequence).to(tl.int64)
    length = tl.load(starts + sequence + 1).to(tl.int64) - begin
    every = tl.cdiv(length, C).to(tl.int32)
    if REVERSED:
        at += PART
        count = tl.minimum(tl.maximum(every - at, 0), PART)
        alone = at + PART >= every
    else:
        count = tl.where(at + PART < every, PART, 0)  # all of it, if another follows
        alone = (at == 0) | (count == 0)
    each = at + tl.arange(0, PART)
    last = (begin + tl.minimum((each + 1).to(tl.int64) * C, length) - 1) * H + head
    ends = tl.load(totals + last, mask=each < at + count, other=0.0)
    between = tl.cumsum(ends, axis=0, reverse=not REVERSED) - ends  # decays between a chunk and the border
    near = tl.sum(((between > -FORGOTTEN) & (each < at + count)).to(tl.int32), axis=0)
    whole = (near == count) & (count > 0)
    at = at if REVERSED else at + count - near
    corner = channel[:, None] * V + column[None, :]
    fits = (channel < K)[:, None] & (column < V)[None, :]
    state = tl.zeros([BLOCK_K, BLOCK_V], dtype=tl.float32)
    if HAS_FIRST:
        begun = first + (sequence * H + head) * (K * V) + corner
        state += tl.load(begun, mask=fits & alone & whole, other=0.0).to(tl.float32)
    given = (left, right, totals, borders, begin, length, 0, at, near, head, channel, column)
    state = _walk(state, *given, H, G, K, V, C, REVERSED, False)
    tl.store(borders + item.to(tl.int64) * (K * V) + corner, state, mask=fits)
    tl.store(decays + item, tl.where(alone, 0.0, tl.exp2(tl.sum(ends, axis=0))))  # the same from all tiles


@triton.jit(do_not_specialize=["count"])
def _join(borders, decays, count, H: tl.constexpr, SIZE: tl.constexpr, BLOCK: tl.constexpr, REVERSED: tl.constexpr):
    """The state at each border, in place: what its part adds, and what its decay leaves of the state at the border before."""
    BLOCKS: tl.constexpr = triton.cdiv(SIZE, BLOCK)
    entry = tl.program_id(0) % BLOCKS * BLOCK + tl.arange(0, BLOCK)
    head = tl.program_id(0) // BLOCKS
    state = tl.zeros([BLOCK], dtype=tl.float32)
    for step in tl.range(0, count, num_stages=4):
        if REVERSED:
            border = count - 1 - step
        else:
            border = step
        item = border * H + head
        here = borders + item.to(tl.int64) * SIZE + entry
        decay = tl.load(decays + item)
        kept = tl.where(decay > 0, state * decay, 0.0)  # a NaN stays in its document
        state = tl.load(here, mask=entry < SIZE, other=0.0) + kept
        tl.store(here, state, mask=entry < SIZE)


@triton.jit(do_not_specialize=["last_chunk"])
def _parts(
    left,
    right,
    totals,
    first,
    borders,
    states,
    last,
    starts,
    chunks,
    last_chunk,
    H: tl.constexpr,
    G: tl.constexpr,
    K: tl.constexpr,
    V: tl.constexpr,
    C: tl.constexpr,
    PART: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_V: tl.constexpr,
    REVERSED: tl.constexpr,
    HAS_FIRST: tl.constexpr,
    HAS_LAST: tl.constexpr,
):
    """As `_states`, for the parts that begin in a window."""
    KEY_BLOCKS: tl.constexpr = triton.cdiv(K, BLOCK_K)
    VALUE_BLOCKS: tl.constexpr = triton.cdiv(V, BLOCK_V)
    channel = tl.program_id(0) % KEY_BLOCKS * BLOCK_K + tl.arange(0, BLOCK_K)
    column = tl.program_id(0) // KEY_BLOCKS % VALUE_BLOCKS * BLOCK_V + tl.arange(0, BLOCK_V)
    item = tl.program_id(0) // (KEY_BLOCKS * VALUE_BLOCKS)
    window, head = item // H, item % H
    corner = channel[:, None] * V + column[None, :]
    fits = (channel < K)[:, None] & (column < V)[None, :]
    number = window * PART
    stop = tl.minimum(number + PART, last_chunk + 1)
    while number < stop:
        sequence = tl.load(chunks + number * 2).to(tl.int64)
        place = tl.load(chunks + number * 2 + 1)
        begin = tl.load(starts + sequence).to(tl.int64)
        length = tl.load(starts + sequence + 1).to(tl.int64) - begin
        every = tl.cdiv(length, C).to(tl.int32)
        at = tl.cdiv(place, PART) * PART  # of the next part, unless the sequence ends before
        count = tl.minimum(tl.maximum(every - at, 0), PART)
        if REVERSED:
            enters, leaves, border = at + PART >= every, at == 0, window
        else:
            enters, leaves, border = at == 0, at + PART >= every, window - 1
        there = fits & (count > 0)
        handed = borders + (border * H + head).to(tl.int64) * (K * V) + corner
        state = tl.load(handed, mask=there & (enters == 0), other=0.0)
        if HAS_FIRST:
            begun = first + (sequence * H + head) * (K * V) + corner
            state += tl.load(begun, mask=there & enters, other=0.0).to(tl.float32)
        given = (left, right, totals, states, begin, length, (number - place).to(tl.int64), at, count)
        state = _walk(state, *given, head, channel, column, H, G, K, V, C, REVERSED, True)
        if HAS_LAST:
            tl.store(last + (sequence * H + head) * (K * V) + corner, state, mask=there & leaves)
        number = tl.where(every > 0, number - place + tl.minimum(at + PART, every), stop)  # else only surplus follows


def border_count(chunks: int, sequences: int, heads: int) -> int:
    """How many windows may have a border; 0 where sequences are not cut into parts."""
    if sequences * heads > CUT or chunks < LONG * sequences:
        return 0
    return -(-chunks // PART) - 1


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
    borders = border_count(len(chunks), sequences, heads)
    tile = tile or (PARTS if borders else STATES_FEW if sequences * heads <= FEW else STATES)
    tile = tile.fit(key_width, value_width)
    states = left_TGK.new_empty(len(chunks), heads, key_width, value_width)
    programs = heads * triton.cdiv(key_width, tile.keys) * triton.cdiv(value_width, tile.values)
    inputs, sizes = (left_TGK, right_THV, totals_TH, first), {"H": heads, "G": groups, "K": key_width, "V": value_width}
    options = {
        "C": CHUNK,
        "BLOCK_K": tile.keys,
        "BLOCK_V": tile.values,
        "REVERSED": backwards,
        "HAS_FIRST": first is not None,
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }
    last = None
    with on_device_of(states):
        if borders == 0:
            if wants_last:
                last = totals_TH.new_empty(sequences, heads, key_width, value_width)
            _states[(sequences * programs,)](
                *inputs, states, last, starts, offsets, **sizes, **options, HAS_LAST=wants_last
            )
            return states, last
        if wants_last:  # a sequence without tokens has no part that would write it
            last = totals_TH.new_zeros(sequences, heads, key_width, value_width)
            last = last if first is None else last.copy_(first)
        handed = totals_TH.new_empty(borders, heads, key_width, value_width)
        decays = totals_TH.new_empty(borders, heads)
        _borders[(borders * programs,)](
            *inputs, handed, decays, starts, chunks, **sizes, **options, PART=PART, FORGOTTEN=FORGOTTEN
        )
        entries = key_width * value_width
        _join[(heads * triton.cdiv(entries, JOIN),)](
            handed, decays, borders, H=heads, SIZE=entries, BLOCK=JOIN, REVERSED=backwards
        )
        _parts[((borders + 1) * programs,)](
            *inputs,
            handed,
            states,
            last,
            starts,
            chunks,
            len(chunks) - 1,
            **sizes,
            **options,
            PART=PART,
            HAS_LAST=wants_last,
        )
    return states, last
