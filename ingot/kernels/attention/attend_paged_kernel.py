"""Triton kernels of attention over pages. attend_paged.py and attend_latent.py launch them.

A program takes BLOCK_M queries of one sequence and one key head: those of the G heads that share the key head, at consecutive
tokens, numbered token·G + head. It reads the keys BLOCK_N at a time through the sequence's page table and keeps a running softmax
(Milakov and Gimelshein, arXiv 1805.02867; FlashAttention-2, arXiv 2307.08691) in powers of two:

    m' = max(m, max_j s_j)     l' = l·2^(m − m') + Σ_j 2^(s_j − m')     a' = a·2^(m − m') + Σ_j 2^(s_j − m') v_j

With few programs the keys are split (flash-decoding, Dao et al. 2023): each split takes an even share of the keys that the
program's own queries can see, and leaves a/l and m + log₂ l for `combine_kernel`. A split without keys leaves only −∞.

Invariants: a program reads no key before the first or after the last that one of its queries may see. Loops depend on positions
in device memory, grids do not: a captured graph serves rows of any length.

Names: W key width, V value width, L latent, R rotated part of an entry; BLOCK_* are powers of two that hold them.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ingot.kernels.launch_kernel import launch_dependents, wait

NOTHING = tl.constexpr(-1e30)  # the largest score of a query that has seen no key yet; finite, as ∞ − ∞ is not a number
LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def _share(lowest, highest, split, SPLITS: tl.constexpr, BLOCK_N: tl.constexpr):
    """This split's part [begin, end) of the keys lowest … highest: whole blocks, but for the last."""
    blocks = tl.cdiv(highest + 1 - lowest, BLOCK_N)
    own = tl.cdiv(blocks, SPLITS) * BLOCK_N
    begin = lowest + split * own
    return begin, tl.minimum(begin + own, highest + 1)


@triton.jit
def _tile(at, width: tl.constexpr, BLOCK: tl.constexpr):
    """The vectors [N, BLOCK] that begin at N addresses, zeros beyond their width."""
    wide = tl.arange(0, BLOCK)
    if width == BLOCK:
        return tl.load(at[:, None] + wide[None, :])
    return tl.load(at[:, None] + wide[None, :], mask=(wide < width)[None, :], other=0.0)


@triton.jit
def _softmax_step(score, largest, total):
    """The keys' weights, the new maximum and total, and what the mixture so far shrinks by."""
    larger = tl.maximum(largest, tl.max(score, 1))
    weight = tl.exp2(score - larger[:, None])
    shrink = tl.exp2(largest - larger)
    return weight, larger, total * shrink + tl.sum(weight, 1), shrink


@triton.jit
def _store(
    mixed, largest, total, out, sums, index, inside, V: tl.constexpr, BLOCK_V: tl.constexpr, SPLITS: tl.constexpr
):
    """The queries' mixtures a/l, and with splits m + log₂ l. `index` counts (split, sequence, token, head)."""
    some = total > 0
    wide = tl.arange(0, BLOCK_V)
    mixed = mixed / tl.where(some, total, 1.0)[:, None]
    if SPLITS > 1:
        tl.store(sums + index, tl.where(some, largest + tl.log2(total), -float("inf")), mask=inside)
        inside &= some
    at = out + index[:, None] * V + wide[None, :]
    tl.store(at, mixed.to(out.dtype.element_ty), mask=inside[:, None] & (wide < V)[None, :])


@triton.jit
def attend_kernel(
    query,  # [B, H, T, W], any strides
    keys,  # [N, K, P, W]
    values,  # [N, K, P, V]
    table,  # [B, pages]
    positions,  # [B, T]
    sinks,  # [H]
    out,  # [SPLITS, B, T, H, V]
    sums,  # [SPLITS, B, T, H]
    tokens,
    heads,
    pages,
    scale,  # of scores in powers of two
    softcap,
    window,
    chunk,
    query_b,
    query_h,
    query_t,
    query_w,
    keys_n,
    keys_k,
    values_n,
    values_k,
    G: tl.constexpr,
    PAGE: tl.constexpr,
    W: tl.constexpr,
    V: tl.constexpr,
    BLOCK_W: tl.constexpr,
    BLOCK_V: tl.constexpr,
    HAS_WINDOW: tl.constexpr,
    HAS_CHUNK: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr,
    HAS_SINKS: tl.constexpr,
    SPLITS: tl.constexpr,
    PRECISION: tl.constexpr,
    DEPENDENT_LAUNCH: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Grouped-query attention."""
    if DEPENDENT_LAUNCH:
        launch_dependents()
        wait()
    split = tl.program_id(0) % SPLITS
    block = (tl.num_programs(0) - 1 - tl.program_id(0)) // SPLITS  # the last queries see most keys: they start first
    key_head = tl.program_id(1)
    sequence = tl.program_id(2).to(tl.int64)

    number = block * BLOCK_M + tl.arange(0, BLOCK_M)
    inside = number < tokens * G
    token = tl.minimum(number // G, tokens - 1).to(tl.int64)
    head = key_head * G + number % G
    position = tl.load(positions + sequence * tokens + token).to(tl.int32)
    first = tl.zeros_like(position)
    if HAS_WINDOW:
        first = tl.maximum(first, position - window + 1)
    if HAS_CHUNK:
        first = tl.maximum(first, position - position % chunk)
    begin, end = _share(tl.min(first, 0), tl.max(position, 0), split, SPLITS, BLOCK_N)

    wide = tl.arange(0, BLOCK_W)
    at = query + sequence * query_b + head[:, None] * query_h + token[:, None] * query_t + wide[None, :] * query_w
    asked = tl.load(at, mask=inside[:, None] & (wide < W)[None, :], other=0.0)
    mixed = tl.zeros((BLOCK_M, BLOCK_V), dtype=tl.float32)
    largest = tl.full((BLOCK_M,), NOTHING, dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)
    if HAS_SINKS:  # a logit without a value, which the first split counts
        sink = tl.load(sinks + head, mask=inside, other=0.0).to(tl.float32) * LOG2_E
        largest = tl.where(split == 0, sink, largest)
        total = tl.where(split == 0, 1.0, total)

    for start in range(begin, end, BLOCK_N):
        key = start + tl.arange(0, BLOCK_N)
        near = tl.minimum(key, end - 1)  # beyond the end a key that is there is read again, and hidden
        page = tl.load(table + sequence * pages + near // PAGE % pages).to(tl.int64)
        found = _tile(keys + page * keys_n + key_head * keys_k + near % PAGE * W, W, BLOCK_W)
        value = _tile(values + page * values_n + key_head * values_k + near % PAGE * V, V, BLOCK_V)
        score = tl.dot(asked, tl.trans(found.to(asked.dtype)), input_precision=PRECISION) * scale
        if HAS_SOFTCAP:  # tanh(x) = 1 − 2/(e^2x + 1) holds at both ends
            score = softcap * LOG2_E * (1.0 - 2.0 / (tl.exp2(score * (2.0 / softcap)) + 1.0))
        seen = (key[None, :] <= position[:, None]) & (key < end)[None, :]
        if HAS_WINDOW or HAS_CHUNK:
            seen &= key[None, :] >= first[:, None]
        weight, largest, total, shrink = _softmax_step(tl.where(seen, score, -float("inf")), largest, total)
        weight, value = weight.to(asked.dtype), value.to(asked.dtype)
        mixed = tl.dot(weight, value, mixed * shrink[:, None], input_precision=PRECISION)

    index = ((split * tl.num_programs(2) + sequence) * tokens + token) * heads + head
    _store(mixed, largest, total, out, sums, index, inside, V, BLOCK_V, SPLITS)


@triton.jit
def latent_kernel(
    query,  # [B, T, H, L + R], any strides
    entries,  # [N, 1, P, L + R]
    table,  # [B, pages]
    positions,  # [B, T]
    out,  # [SPLITS, B, T, H, L]
    sums,  # [SPLITS, B, T, H]
    tokens,
    heads,
    pages,
    scale,
    query_b,
    query_t,
    query_h,
    query_e,
    entries_n,
    PAGE: tl.constexpr,
    L: tl.constexpr,
    R: tl.constexpr,
    BLOCK_L: tl.constexpr,
    BLOCK_R: tl.constexpr,
    SPLITS: tl.constexpr,
    PRECISION: tl.constexpr,
    DEPENDENT_LAUNCH: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """Multi-head latent attention in absorbed form: a tile of latents is read once, as keys and as values of all heads."""
    if DEPENDENT_LAUNCH:
        launch_dependents()
        wait()
    split = tl.program_id(0) % SPLITS
    block = (tl.num_programs(0) - 1 - tl.program_id(0)) // SPLITS
    sequence = tl.program_id(1).to(tl.int64)

    number = block * BLOCK_M + tl.arange(0, BLOCK_M)
    inside = number < tokens * heads
    token = tl.minimum(number // heads, tokens - 1).to(tl.int64)
    head = number % heads
    position = tl.load(positions + sequence * tokens + token).to(tl.int32)
    begin, end = _share(0, tl.max(position, 0), split, SPLITS, BLOCK_N)

    wide, rotated = tl.arange(0, BLOCK_L), tl.arange(0, BLOCK_R)
    at = query + sequence * query_b + token[:, None] * query_t + head[:, None] * query_h
    asked = tl.load(at + wide[None, :] * query_e, mask=inside[:, None] & (wide < L)[None, :], other=0.0)
    asked_rotated = tl.load(
        at + (L + rotated)[None, :] * query_e, mask=inside[:, None] & (rotated < R)[None, :], other=0.0
    )
    mixed = tl.zeros((BLOCK_M, BLOCK_L), dtype=tl.float32)
    largest = tl.full((BLOCK_M,), NOTHING, dtype=tl.float32)
    total = tl.zeros((BLOCK_M,), dtype=tl.float32)

    for start in range(begin, end, BLOCK_N):
        key = start + tl.arange(0, BLOCK_N)
        near = tl.minimum(key, end - 1)
        page = tl.load(table + sequence * pages + near // PAGE % pages).to(tl.int64)
        entry = entries + page * entries_n + near % PAGE * (L + R)
        latent = _tile(entry, L, BLOCK_L).to(asked.dtype)
        found = _tile(entry + L, R, BLOCK_R).to(asked.dtype)
        score = tl.dot(asked, tl.trans(latent), input_precision=PRECISION)
        score = tl.dot(asked_rotated, tl.trans(found), score, input_precision=PRECISION) * scale
        seen = (key[None, :] <= position[:, None]) & (key < end)[None, :]
        weight, largest, total, shrink = _softmax_step(tl.where(seen, score, -float("inf")), largest, total)
        mixed = tl.dot(weight.to(asked.dtype), latent, mixed * shrink[:, None], input_precision=PRECISION)

    index = ((split * tl.num_programs(1) + sequence) * tokens + token) * heads + head
    _store(mixed, largest, total, out, sums, index, inside, L, BLOCK_L, SPLITS)


@triton.jit
def combine_kernel(
    parts,  # [SPLITS, N, V]
    sums,  # [SPLITS, N]
    out,  # [N, V]
    V: tl.constexpr,
    BLOCK_V: tl.constexpr,
    SPLITS: tl.constexpr,
    BLOCK_S: tl.constexpr,
    SOME: tl.constexpr,
    DEPENDENT_LAUNCH: tl.constexpr,
):
    """Mixtures of the splits, weighted by their sums, SOME at a time: one program for each query of each head."""
    if DEPENDENT_LAUNCH:
        launch_dependents()
        wait()
    index = tl.program_id(0).to(tl.int64)
    rows = tl.num_programs(0)
    split, wide = tl.arange(0, BLOCK_S), tl.arange(0, BLOCK_V)
    shares = tl.load(sums + split * rows + index, mask=split < SPLITS, other=-float("inf"))
    largest = tl.maximum(tl.max(shares, 0), NOTHING)
    total = tl.sum(tl.exp2(shares - largest), 0)
    mixed = tl.zeros((BLOCK_V,), dtype=tl.float32)
    for start in range(0, SPLITS, SOME):
        some = start + tl.arange(0, SOME)
        share = tl.load(sums + some * rows + index, mask=some < SPLITS, other=-float("inf"))
        weight = tl.exp2(share - largest)
        there = (weight > 0)[:, None] & (wide < V)[None, :]  # a split without keys has written no mixture
        part = tl.load(parts + (some[:, None] * rows + index) * V + wide[None, :], mask=there, other=0.0)
        mixed += tl.sum(part * weight[:, None], 0)
    mixed /= tl.where(total > 0, total, 1.0)
    tl.store(out + index * V + wide, mixed.to(out.dtype.element_ty), mask=wide < V)
