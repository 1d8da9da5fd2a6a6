"""Triton kernel of draw.py: one program a row, without sorting and without waiting for the device.

The row is read in blocks. One pass gives each block's largest value m_b and sum s_b = Σ exp(x − m_b), from which follow

    the largest value m of the row, its mass Z = Σ_b s_b exp(m_b − m), and the block in which the cumulative
    distribution passes u · Z

and only that block is read again. So a row without truncation is read once. Truncation needs the largest t for which
the tokens with x ≥ t are at least k, or have at least the share p of the mass. Floats have the order of integers
(`_value`), so t is searched for exactly among the integers, PROBES at a time with one pass each, until a single token is
left between the bounds: some 4 to 11 passes. Nearly always t is among the CANDIDATES largest values, which torch finds
faster; then it is read off them (`_among`) and nothing is searched. A last pass sums up what is kept.

The same numbers as the definition in draw.py: x is the same float32 to the bit (no fused multiplication and
addition), sums are in float64; exponentials differ by some 1e-7. So ids differ where u · Z comes as close as that to
the boundary between two tokens, or a mass as close to top_p; log-probabilities differ by some 1e-7.

Shapes: B rows, V vocabulary.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from ingot.kernels.head.draw_controls import CANDIDATES, DrawControls

BLOCK, SEARCH_BLOCK, PROBES, WARPS = 4096, 2048, 4, 8


@triton.jit
def _scaled(row, columns, scale, SIZE: tl.constexpr):
    return tl.load(row + columns, mask=columns < SIZE, other=-float("inf")).to(tl.float32) * scale


@triton.jit
def _weights(x, top, floor):
    """exp(x − top), 0 below the floor; a block of nothing but −∞ has weights 0, and what is not a number stays so."""
    return tl.where(x < floor, 0.0, tl.exp(x - tl.where(top == -float("inf"), 0.0, top))).to(tl.float64)


@triton.jit
def _blocks(row, scale, floor, SIZE: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr):
    """Each block's largest value, and the sum of its weights relative to that."""
    numbers = tl.arange(0, BLOCKS)
    tops = tl.full([BLOCKS], -float("inf"), tl.float32)
    sums = tl.zeros([BLOCKS], tl.float64)
    for block in tl.range(0, tl.cdiv(SIZE, BLOCK), num_stages=3):  # reads ahead
        x = _scaled(row, block * BLOCK + tl.arange(0, BLOCK), scale, SIZE)
        top = tl.max(x, 0)
        tops = tl.where(numbers == block, top, tops)
        sums = tl.where(numbers == block, tl.sum(_weights(x, top, floor), 0), sums)
    return tops, sums


@triton.jit
def _shares(tops, sums):
    """The row's largest value, and the mass of each block relative to it."""
    top = tl.max(tops, 0)
    return top, sums * tl.exp((tops - top).to(tl.float64))


@triton.jit
def _value(key):
    """The float32 of an integer in the order of the floats: −1 is −0.0, 0 is 0.0; its own inverse on the bits."""
    bits = key.to(tl.int32)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def _key(value):
    bits = value.to(tl.int32, bitcast=True)
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).to(tl.int64)


@triton.jit
def _search(
    row,
    scale,
    top,
    low,
    mass,
    target,
    BY_COUNT: tl.constexpr,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    PROBES: tl.constexpr,
):
    """The largest key t ≥ low for which the tokens with x ≥ t count, or weigh, at least `target`; and their mass.

    Invariant: the tokens from `low` on reach the target, those from `high` on do not.
    """
    high = _key(top) + 1
    count_low, count_high = SIZE, 0
    # the first probes are 2, 4, 8 … below the top, where the bounds of usual distributions are
    probes = tl.maximum(low, _key(top - (1 << (PROBES - tl.arange(0, PROBES))).to(tl.float32)))
    while (high - low > 1) & (count_low - count_high > 1):
        floors = _value(probes)
        counts = tl.zeros([PROBES], tl.int32)
        masses = tl.zeros([PROBES], tl.float64)
        for start in tl.range(0, SIZE, BLOCK, num_stages=3):
            x = _scaled(row, start + tl.arange(0, BLOCK), scale, SIZE)
            weights = _weights(x, top, -float("inf"))
            kept = x[:, None] >= floors[None, :]
            counts += tl.sum(kept.to(tl.int32), 0)
            masses += tl.sum(tl.where(kept, weights[:, None], 0.0), 0)
        reached = (counts if BY_COUNT else masses) >= target
        low = tl.max(tl.where(reached, probes, low), 0)
        high = tl.min(tl.where(reached, high, probes), 0)
        count_low = tl.min(tl.where(reached, counts, count_low), 0)
        count_high = tl.max(tl.where(reached, count_high, counts), 0)
        mass = tl.min(tl.where(reached, masses, mass), 0)
        probes = low + (high - low) * (tl.arange(0, PROBES) + 1) // (PROBES + 1)
    return low, mass


@triton.jit
def _among(values, top, top_k, top_p, mass, COUNT: tl.constexpr):
    """The floor of top-k and top-p read off the row's largest values, in falling order; and whether it is among them."""
    numbers = tl.arange(0, COUNT)
    weights = tl.exp(values - top).to(tl.float64)
    cumulative = tl.cumsum(weights, 0)
    last = tl.min(values, 0)
    floor, found = tl.full([], -float("inf"), tl.float32), True
    if top_k > 0:
        floor = tl.max(tl.where(numbers == top_k - 1, values, -float("inf")), 0)
        found = (top_k < COUNT) & (last < floor)  # equal values may go on beyond the last
        mass = tl.max(tl.where(values >= floor, cumulative, 0.0), 0)
    if top_p < 1:
        reached = cumulative >= top_p * mass
        floor = tl.maximum(floor, tl.max(tl.where(reached, values, -float("inf")), 0))
        found = found & (tl.max(cumulative, 0) >= top_p * mass)
    return floor, found


@triton.jit
def _uniform(stream, step):
    """uniform.py in unsigned arithmetic."""
    state = stream.to(tl.uint64, bitcast=True) + (step + 1).to(tl.uint64) * 0x9E3779B97F4A7C15
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB
    return ((state ^ (state >> 31)) >> 12).to(tl.float64) * (1.0 / 4503599627370496.0)


@triton.jit
def _draw(
    logits,
    logits_stride,
    source,
    source_stride,
    streams,
    steps,
    greedy,
    scales,
    policy_scales,
    top_ks,
    top_ps,
    log_min_ps,
    candidates,
    ids,
    logprobs,
    floors,
    SIZE: tl.constexpr,
    OWN: tl.constexpr,
    TRUNCATED: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCKS: tl.constexpr,
    SEARCH_BLOCK: tl.constexpr,
    PROBES: tl.constexpr,
    COUNT: tl.constexpr,
):
    number = tl.program_id(0).to(tl.int64)
    row, policy_row = source + number * source_stride, logits + number * logits_stride
    scale = tl.load(scales + number).to(tl.float32)
    policy_scale = tl.load(policy_scales + number).to(tl.float32)
    floor = -float("inf")
    tops, sums = _blocks(row, scale, floor, SIZE, BLOCK, BLOCKS)
    top, shares = _shares(tops, sums)
    if OWN:  # drawn from the very distribution that is reported
        policy_top, total = top, tl.sum(shares, 0)
    else:
        policy_tops, policy_sums = _blocks(policy_row, policy_scale, floor, SIZE, BLOCK, BLOCKS)
        policy_top, policy_shares = _shares(policy_tops, policy_sums)
        total = tl.sum(policy_shares, 0)

    if TRUNCATED:
        top_k, top_p = tl.load(top_ks + number), tl.load(top_ps + number)
        log_min_p = tl.load(log_min_ps + number).to(tl.float32)
        low, mass = _key(tl.full([], -float("inf"), tl.float32)), tl.sum(shares, 0)
        found = False
        if COUNT > 0:
            values = tl.load(candidates + number * COUNT + tl.arange(0, COUNT)).to(tl.float32) * scale
            least, found = _among(values, top, top_k, top_p, mass, COUNT)
            low = tl.where(found, _key(least), low)
        if (top_k > 0) & (not found):
            low, mass = _search(row, scale, top, low, mass, top_k, True, SIZE, SEARCH_BLOCK, PROBES)
        if (top_p < 1) & (not found):
            low, mass = _search(row, scale, top, low, mass, top_p * mass, False, SIZE, SEARCH_BLOCK, PROBES)
        floor = tl.maximum(_value(low), top + log_min_p)
        if floor > -float("inf"):
            tops, sums = _blocks(row, scale, floor, SIZE, BLOCK, BLOCKS)
            top, shares = _shares(tops, sums)
        tl.store(floors + number, floor)

    numbers, columns = tl.arange(0, BLOCKS), tl.arange(0, BLOCK)
    is_greedy = tl.load(greedy + number) > 0
    cumulative = tl.cumsum(shares, 0)
    target = _uniform(tl.load(streams + number), tl.load(steps + number)) * tl.max(cumulative, 0)
    first_best = tl.min(tl.where(tops == top, numbers, BLOCKS), 0)
    block = tl.where(is_greedy, first_best, tl.sum((cumulative <= target).to(tl.int32), 0))
    block = tl.minimum(block, tl.cdiv(SIZE, BLOCK) - 1)  # only matters for rows that are not numbers
    block_top = tl.max(tl.where(numbers == block, tops, -float("inf")), 0)
    before = tl.max(tl.where(numbers < block, cumulative, 0.0), 0)
    rest = (target - before) / tl.exp((block_top - top).to(tl.float64))
    x = _scaled(row, block * BLOCK + columns, scale, SIZE)
    weights = _weights(x, block_top, floor)
    drawn = tl.sum((tl.cumsum(weights, 0) <= rest).to(tl.int32), 0)
    last = tl.max(tl.where(weights > 0, columns, 0), 0)  # sums in another order may differ by a rounding
    best = tl.min(tl.where(x == top, columns, BLOCK - 1), 0)
    column = block * BLOCK + tl.where(is_greedy, best, tl.minimum(drawn, last))
    column = tl.minimum(column, SIZE - 1)
    value = tl.load(policy_row + column).to(tl.float32) * policy_scale
    logprob = (value - policy_top).to(tl.float64) - tl.log(total)
    tl.store(ids + number, column.to(tl.int64))
    tl.store(logprobs + number, tl.where(top == -float("inf"), float("nan"), logprob))


def draw_rows_triton(
    logits_BV: Tensor, modified_BV: Tensor | None, controls: DrawControls, steps_B: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Ids, log-probabilities, and the floor of the kept tokens if any row truncates."""
    batch, size = logits_BV.shape
    if logits_BV.stride(-1) != 1:
        logits_BV = logits_BV.contiguous()
    source_BV = logits_BV if modified_BV is None else modified_BV
    ids_B = torch.empty(batch, dtype=torch.int64, device=logits_BV.device)
    logprobs_B = torch.empty(batch, dtype=torch.float64, device=logits_BV.device)
    truncated = controls.truncated_T is not None
    floor_B = torch.empty(batch, dtype=torch.float32, device=logits_BV.device) if truncated else None
    few = truncated and size >= 4 * CANDIDATES
    candidates_BC = source_BV.topk(CANDIDATES, dim=-1).values if few else None
    with torch.cuda.device_of(logits_BV):  # the interpreter of Triton runs on the CPU
        _draw[(batch,)](
            logits_BV,
            logits_BV.stride(0),
            source_BV,
            source_BV.stride(0),
            controls.streams_B,
            steps_B,
            controls.greedy_B,
            controls.scale_B,
            controls.policy_scale_B,
            controls.top_k_B,
            controls.top_p_B,
            controls.log_min_p_B,
            candidates_BC,
            ids_B,
            logprobs_B,
            floor_B,
            SIZE=size,
            OWN=modified_BV is None and not controls.any_raw,
            TRUNCATED=truncated,
            BLOCK=BLOCK,
            BLOCKS=triton.next_power_of_2(math.ceil(size / BLOCK)),
            SEARCH_BLOCK=SEARCH_BLOCK,
            PROBES=PROBES,
            COUNT=CANDIDATES if few else 0,
            num_warps=WARPS,
            enable_fp_fusion=False,
        )
    return ids_B, logprobs_B, floor_B
