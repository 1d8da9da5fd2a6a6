"""Triton kernels of cross_entropy.py; the gradient is written over the logits.

A program takes a row: one pass for the sum, one that writes. The rows in flight (two a multiprocessor; of 50,000 logits in
bfloat16 26 MB) fit into the second-level cache, so that memory moves every logit in once and out once. Longer rows exceed it:
the second pass goes back from the end, which was read last.

Exponentials are powers of two, Z = 2^r Σ_v 2^{c z_v − r} with c = log₂ e and r = max c z_v: c z − r is one instruction, rounded
once, and r may itself be rounded as long as it is the same number everywhere. The first pass is online: every lane keeps its
own r and the sum that belongs to it, and the lanes are combined once, at the end of the row.

Arithmetic is in float32. tests/kernels/test_cross_entropy_cuda.py compares all of it with float64.

Shapes: C tokens of a chunk, V vocabulary. Logits are [C, V]; there may be gaps between their rows, which nothing is written to.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 32768  # logits that a program takes at once
WARPS = 32
STAGES = 1  # blocks in flight; with 1 the warps overlap their reads, as they synchronise only at the end of a row
LANE_BYTES = 16  # the logits that a thread reads at once
LOG2_E = tl.constexpr(1 / math.log(2))
LN_2 = tl.constexpr(math.log(2))
LOWEST = tl.constexpr(-3e38)  # finite: lanes that saw nothing subtract no infinities


@triton.jit
def _capped(x, SCALE: tl.constexpr, SOFTCAP: tl.constexpr):
    """z of the products x."""
    z = x.to(tl.float32)
    if SCALE != 1.0:
        z = z * SCALE
    if SOFTCAP is not None:
        z = SOFTCAP * (2.0 * tl.sigmoid(z * (2.0 / SOFTCAP)) - 1.0)  # tanh
    return z


@triton.jit
def _gradient(z, factor, hit, r, SCALE: tl.constexpr, SOFTCAP: tl.constexpr):
    """(hit + factor · 2^{c z − r}) · ∂z/∂x"""
    gradient = factor * tl.exp2(tl.fma(z, LOG2_E, -r)) + hit
    if SOFTCAP is not None:
        share = z * (1.0 / SOFTCAP)
        gradient = gradient * (1.0 - share * share)
    return gradient if SCALE == 1.0 else gradient * SCALE


@triton.jit
def _add_block(z, r, total):
    """Take logits [lanes, n] into the lanes' r and into their sums Σ 2^{c z − r}."""
    following = tl.maximum(r, tl.max(z, axis=1) * LOG2_E)
    added = tl.sum(tl.exp2(tl.fma(z, LOG2_E, -following[:, None])), axis=1)
    return following, total * tl.exp2(r - following) + added


@triton.jit
def _sum_row(
    row,
    COLUMNS: tl.constexpr,
    SCALE: tl.constexpr,
    SOFTCAP: tl.constexpr,
    BLOCK: tl.constexpr,
    LANE: tl.constexpr,
    STAGES: tl.constexpr,
):
    """r and Σ 2^{c z − r}"""
    column = tl.arange(0, BLOCK // LANE)[:, None] * LANE + tl.arange(0, LANE)[None, :]
    r, total = tl.full((BLOCK // LANE,), LOWEST, tl.float32), tl.zeros((BLOCK // LANE,), tl.float32)
    WHOLE: tl.constexpr = COLUMNS // BLOCK * BLOCK
    for start in tl.range(0, WHOLE, BLOCK, num_stages=STAGES):
        x = tl.load(row + start + column, eviction_policy="evict_last")
        r, total = _add_block(_capped(x, SCALE, SOFTCAP), r, total)
    if WHOLE < COLUMNS:
        inside = WHOLE + column < COLUMNS
        x = tl.load(row + WHOLE + column, mask=inside, other=0.0, eviction_policy="evict_last")
        r, total = _add_block(tl.where(inside, _capped(x, SCALE, SOFTCAP), float("-inf")), r, total)
    largest = tl.max(r, axis=0)
    return largest, tl.sum(total * tl.exp2(r - largest), axis=0)


@triton.jit
def _write_row(
    row,
    factor,
    r,
    COLUMNS: tl.constexpr,
    SCALE: tl.constexpr,
    SOFTCAP: tl.constexpr,
    BLOCK: tl.constexpr,
    LANE: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Logits become their gradient, but for what the target adds; the last block first, which the caches still have."""
    column = tl.arange(0, BLOCK // LANE)[:, None] * LANE + tl.arange(0, LANE)[None, :]
    WHOLE: tl.constexpr = COLUMNS // BLOCK * BLOCK
    if WHOLE < COLUMNS:
        inside, address = WHOLE + column < COLUMNS, row + WHOLE + column
        z = _capped(tl.load(address, mask=inside, other=0.0, eviction_policy="evict_first"), SCALE, SOFTCAP)
        gradient = _gradient(z, factor, 0.0, r, SCALE, SOFTCAP)
        tl.store(address, gradient.to(row.dtype.element_ty), mask=inside, eviction_policy="evict_first")
    for start in tl.range(0, WHOLE, BLOCK, num_stages=STAGES):
        address = row + (WHOLE - BLOCK - start) + column
        z = _capped(tl.load(address, eviction_policy="evict_first"), SCALE, SOFTCAP)
        gradient = _gradient(z, factor, 0.0, r, SCALE, SOFTCAP)
        tl.store(address, gradient.to(row.dtype.element_ty), eviction_policy="evict_first")


@triton.jit
def _rows(
    logits,
    targets,
    a,
    b,
    normalisers,
    scores,
    COLUMNS: tl.constexpr,
    STRIDE: tl.constexpr,
    SUMS: tl.constexpr,
    WRITES: tl.constexpr,
    HAS_B: tl.constexpr,
    SCALE: tl.constexpr,
    SOFTCAP: tl.constexpr,
    BLOCK: tl.constexpr,
    LANE: tl.constexpr,
    STAGES: tl.constexpr,
):
    """SUMS alone is `summarise`, its scores are the targets' logits; WRITES alone is `spread`, without scores; both together
    are `differentiate`, the scores are log-probabilities."""
    number = tl.program_id(0).to(tl.int64)
    row = logits + number * STRIDE
    target = tl.load(targets + number)
    here = (target >= 0) & (target < COLUMNS)
    z = _capped(tl.load(row + target, mask=here, other=0.0), SCALE, SOFTCAP)
    if SUMS:
        r, total = _sum_row(row, COLUMNS, SCALE, SOFTCAP, BLOCK, LANE, STAGES)
        normaliser = tl.fma(r, LN_2, LN_2 * tl.log2(total))
        tl.store(normalisers + number, normaliser)
        if WRITES:  # a target outside of the vocabulary makes the loss not a number
            logprob = LN_2 * (tl.fma(z, LOG2_E, -r) - tl.log2(total))
            tl.store(scores + number, tl.where(here, logprob, float("nan")))
        else:
            tl.store(scores + number, tl.where(here, z, 0.0))
    else:
        normaliser = tl.load(normalisers + number)
        r = normaliser * LOG2_E
        total = tl.exp2(tl.fma(normaliser, LOG2_E, -r))  # what the rounding of r lost
    if WRITES:
        hit = tl.load(a + number)
        factor = -hit
        if HAS_B:
            factor += 2.0 * tl.load(b + number) * normaliser
        factor = factor / total
        tl.debug_barrier()  # all threads have read the target's logit
        _write_row(row, factor, r, COLUMNS, SCALE, SOFTCAP, BLOCK, LANE, STAGES)
        tl.debug_barrier()  # all have written
        gradient = _gradient(z, factor, hit, r, SCALE, SOFTCAP)
        tl.store(row + target, gradient.to(row.dtype.element_ty), mask=here)


def differentiate(
    logits_CV: Tensor, targets_C: Tensor, a_C: Tensor, b_C: Tensor | None, scale: float, softcap: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities (of targets outside of the vocabulary: not a number), log-normalisers, and the logits, which have
    become their gradient."""
    normalisers_C, logprobs_C = _launch(logits_CV, targets_C, a_C, b_C, None, scale, softcap)
    return logprobs_C, normalisers_C, logits_CV


def summarise(logits_CV: Tensor, targets_C: Tensor, scale: float, softcap: float | None) -> Tensor:
    """[2, C]: log Z of these columns, and the target's logit if it is among them, else zero."""
    return _launch(logits_CV, targets_C, None, None, None, scale, softcap)


def spread(
    logits_CV: Tensor,
    targets_C: Tensor,
    normalisers_C: Tensor,
    a_C: Tensor,
    b_C: Tensor | None,
    scale: float,
    softcap: float | None,
) -> Tensor:
    """The logits, which have become their gradient; log Z is given, and the target may be among other columns."""
    _launch(logits_CV, targets_C, a_C, b_C, normalisers_C, scale, softcap)
    return logits_CV


def _launch(
    logits_CV: Tensor,
    targets_C: Tensor,
    a_C: Tensor | None,
    b_C: Tensor | None,
    normalisers_C: Tensor | None,
    scale: float,
    softcap: float | None,
) -> Tensor:
    """[2, C]: log-normalisers and scores, where these are not given; gradients are written where there is an a."""
    rows, columns = logits_CV.shape
    assert logits_CV.stride(1) == 1
    made_2C = torch.empty(2, rows, dtype=torch.float32, device=logits_CV.device)
    given = (made_2C[0] if each is None else each.float().contiguous() for each in (a_C, b_C, normalisers_C))
    with torch.cuda.device_of(logits_CV):
        _rows[(rows,)](
            logits_CV,
            targets_C.contiguous(),
            *given,
            made_2C[1],
            COLUMNS=columns,
            STRIDE=logits_CV.stride(0),
            SUMS=normalisers_C is None,
            WRITES=a_C is not None,
            HAS_B=b_C is not None,
            SCALE=scale,
            SOFTCAP=softcap,
            BLOCK=BLOCK,
            LANE=LANE_BYTES // logits_CV.element_size(),
            STAGES=STAGES,
            num_warps=WARPS,
        )
    return made_2C


@triton.jit
def _multiply(x, factor, count, BLOCK: tl.constexpr, STEPS: tl.constexpr):
    by = tl.load(factor).to(tl.float32)
    if by != 1.0:
        for step in range(STEPS):
            index = (tl.program_id(0).to(tl.int64) * STEPS + step) * BLOCK + tl.arange(0, BLOCK)
            value = tl.load(x + index, mask=index < count, other=0.0).to(tl.float32) * by
            tl.store(x + index, value.to(x.dtype.element_ty), mask=index < count)


def multiply_unless_one(x: Tensor, factor: Tensor) -> None:
    """x ← x · factor, a number on the device; where it is 1, as it usually is, x is not even read."""
    assert x.is_contiguous()
    block, steps = 4096, 16
    torch.autograd.graph.increment_version(x)
    with torch.cuda.device_of(x):
        _multiply[(triton.cdiv(x.numel(), block * steps),)](x, factor, x.numel(), BLOCK=block, STEPS=steps, num_warps=8)
