"""Triton kernels of index_divergence.py, as operators that torch.compile leaves whole. A program takes one query.

* `probability_kernel`: BLOCK_H heads of the query on BLOCK_N entries at a time; probabilities come from the saved sums. Further
  heads are further launches, which add.
* `divergence_kernel`: the index scores of BLOCK_N chosen keys at a time, with a running log-sum-exp; one pass is enough, since
  D = Σ p log p − Σ p I + log Σ e^I where Σ p = 1.
* `divergence_backward_kernel`: the scores again, ∂I, and from it the gradients of queries, head weights and keys.

Scores are natural logarithms here, those of attention powers of two. Names as in sparse_attention_kernel.py; J indexer heads.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ingot.kernels.attention.attend_paged import precision
from ingot.kernels.attention.attend_paged_kernel import _tile
from ingot.kernels.launch import on_device_of, power_of_two
from ingot.kernels.sparse.gather_kernel import _count, _heads, _indices

NOTHING = tl.constexpr(-1e30)


@triton.jit
def probability_kernel(
    query,  # [B, T, H, L + R], contiguous as all others
    entries,  # [B, S, L + R]
    selected,  # [B, T, K]
    sums,  # [B, T, H]
    out,  # [B, T, K]
    begin,  # the first of the heads
    tokens,
    heads,
    kept,
    keys,
    scale,  # of scores in powers of two
    L: tl.constexpr,
    R: tl.constexpr,
    BLOCK_L: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_K: tl.constexpr,
    ADDS: tl.constexpr,  # to what is there, from other heads
    PRECISION: tl.constexpr,
    BLOCK_H: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """The share of BLOCK_H heads in the mean probability of every chosen key."""
    item = tl.program_id(0).to(tl.int64)
    row = item // tokens
    selected += item * kept
    count = _count(selected, kept, BLOCK_K)
    head = begin + tl.arange(0, BLOCK_H)
    inside = head < heads
    at = query + (item * heads + head) * (L + R)
    asked = _heads(at, 1, inside, 0, L, BLOCK_L)
    asked_rotated = _heads(at, 1, inside, L, R, BLOCK_R)
    total = tl.load(sums + item * heads + head, mask=inside, other=0.0)
    chosen = _indices(selected, 0, count, BLOCK_N)
    for start in range(0, count, BLOCK_N):
        following = _indices(selected, start + BLOCK_N, count, BLOCK_N)  # as in sparse_gradients_kernel.py
        place = start + tl.arange(0, BLOCK_N)
        offset = (row * keys + tl.maximum(chosen, 0)) * (L + R)
        latent = _tile(entries + offset, L, BLOCK_L)
        found = _tile(entries + offset + L, R, BLOCK_R)
        score = tl.dot(asked, tl.trans(latent), input_precision=PRECISION)
        score = tl.dot(asked_rotated, tl.trans(found), score, input_precision=PRECISION)
        weight = tl.where(inside[:, None], tl.exp2(score * scale - total[:, None]), 0.0)
        mean = tl.where(chosen >= 0, tl.sum(weight, 0) / heads, 0.0)
        if ADDS:
            mean += tl.load(out + item * kept + place, mask=place < count, other=0.0)
        tl.store(out + item * kept + place, mean, mask=place < count)
        chosen = following
    if not ADDS:
        rest = tl.arange(0, BLOCK_K)
        nothing = tl.zeros((BLOCK_K,), dtype=tl.float32)
        tl.store(out + item * kept + rest, nothing, mask=(rest >= count) & (rest < kept))


@triton.jit
def divergence_kernel(
    query,  # [B, T, J, W], contiguous as all others
    weight,  # [B, T, J], scaled, float32
    key,  # [B, S, W]
    selected,  # [B, T, K]
    target,  # [B, T, K], float32
    out,  # [B, T]
    sums,  # [B, T]: log Σ e^I
    tokens,
    heads,
    kept,
    keys,
    W: tl.constexpr,
    BLOCK_W: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """The divergence of one query."""
    item = tl.program_id(0).to(tl.int64)
    row = item // tokens
    count = _count(selected + item * kept, kept, BLOCK_K)
    head = tl.arange(0, BLOCK_J)
    asked = _heads(query + (item * heads + head) * W, 1, head < heads, 0, W, BLOCK_W)
    share = tl.load(weight + item * heads + head, mask=head < heads, other=0.0)
    place = tl.arange(0, BLOCK_N)
    largest = tl.full((BLOCK_N,), NOTHING, dtype=tl.float32)  # of each of the BLOCK_N places; they meet at the end
    total = tl.zeros((BLOCK_N,), dtype=tl.float32)
    gap = tl.zeros((BLOCK_N,), dtype=tl.float32)
    for start in range(0, count, BLOCK_N):
        chosen = tl.load(selected + item * kept + start + place, mask=start + place < count, other=-1)
        wanted = tl.load(target + item * kept + start + place, mask=start + place < count, other=0.0)
        found = _tile(key + (row * keys + tl.maximum(chosen, 0)) * W, W, BLOCK_W)
        product = tl.maximum(tl.dot(asked, tl.trans(found), input_precision=PRECISION), 0.0)
        score = tl.sum(share[:, None] * product, 0)
        gap += tl.where(wanted > 0, wanted * (tl.log(tl.where(wanted > 0, wanted, 1.0)) - score), 0.0)
        score = tl.where(chosen >= 0, score, -float("inf"))
        larger = tl.maximum(largest, score)
        total = total * tl.exp(largest - larger) + tl.exp(score - larger)
        largest = larger
    peak = tl.max(largest, 0)
    whole = tl.sum(total * tl.exp(largest - peak), 0)
    normaliser = tl.where(count > 0, peak + tl.log(tl.where(whole > 0, whole, 1.0)), 0.0)
    tl.store(sums + item, normaliser)
    tl.store(out + item, tl.sum(gap, 0) + normaliser)


@triton.jit
def divergence_backward_kernel(
    query,
    weight,
    key,
    selected,
    target,
    sums,
    of_out,  # [B, T]
    of_query,  # [B, T, J, W]
    of_weight,  # [B, T, J], float32
    of_key,  # [B, S, W], float32
    tokens,
    heads,
    kept,
    keys,
    W: tl.constexpr,
    BLOCK_W: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_N: tl.constexpr,
):
    """∂query and ∂weight of one query, and its share of ∂key."""
    item = tl.program_id(0).to(tl.int64)
    row = item // tokens
    given = tl.load(of_out + item)
    count = tl.where(given != 0.0, _count(selected + item * kept, kept, BLOCK_K), 0)  # padding has no loss
    head, channel = tl.arange(0, BLOCK_J), tl.arange(0, BLOCK_W)
    inside = head < heads
    at = (item * heads + head) * W
    asked = _heads(query + at, 1, inside, 0, W, BLOCK_W)
    share = tl.load(weight + item * heads + head, mask=inside, other=0.0)
    normaliser = tl.load(sums + item)
    of_asked = tl.zeros((BLOCK_J, BLOCK_W), dtype=tl.float32)
    of_share = tl.zeros((BLOCK_J,), dtype=tl.float32)
    for start in range(0, count, BLOCK_N):
        place = start + tl.arange(0, BLOCK_N)
        chosen = tl.load(selected + item * kept + place, mask=place < count, other=-1)
        wanted = tl.load(target + item * kept + place, mask=place < count, other=0.0)
        offset = (row * keys + tl.maximum(chosen, 0)) * W
        found = _tile(key + offset, W, BLOCK_W)
        product = tl.maximum(tl.dot(asked, tl.trans(found), input_precision=PRECISION), 0.0)
        score = tl.sum(share[:, None] * product, 0)
        of_score = tl.where(chosen >= 0, given * (tl.exp(score - normaliser) - wanted), 0.0)
        of_share += tl.sum(product * of_score[None, :], 1)
        of_product = tl.where(product > 0, share[:, None] * of_score[None, :], 0.0).to(asked.dtype)
        of_asked = tl.dot(of_product, found, of_asked, input_precision=PRECISION)
        of_found = tl.dot(tl.trans(of_product), asked, input_precision=PRECISION)
        there = (chosen >= 0)[:, None] & (channel < W)[None, :]
        tl.atomic_add((of_key + offset)[:, None] + channel[None, :], of_found, mask=there, sem="relaxed")
    to = of_query + at[:, None] + channel[None, :]
    tl.store(to, of_asked.to(of_query.dtype.element_ty), mask=inside[:, None] & (channel < W)[None, :])
    tl.store(of_weight + item * heads + head, of_share, mask=inside)


@torch.library.custom_op("ingot::mean_probabilities", mutates_args=())
def mean_probabilities_operator(
    query: Tensor, entry: Tensor, selected: Tensor, sums: Tensor, latent_width: int, scale: float
) -> Tensor:
    """The heads' mean probabilities [B, T, K]."""
    query, entry, selected, sums = (x.contiguous() for x in (query, entry, selected, sums))
    rows, tokens, heads, width = query.shape
    out = torch.empty(selected.shape, dtype=torch.float32, device=query.device)
    wide = query.element_size() == 4
    block_h = 16 if wide else min(64, power_of_two(heads))  # 64 queries and 64 entries twice: 216 KB
    for begin in range(0, heads if out.numel() else 0, block_h):
        with on_device_of(query):
            probability_kernel[(rows * tokens,)](
                query,
                entry,
                selected,
                sums,
                out,
                begin,
                tokens,
                heads,
                selected.shape[-1],
                entry.shape[1],
                scale * math.log2(math.e),
                L=latent_width,
                R=width - latent_width,
                BLOCK_L=power_of_two(latent_width),
                BLOCK_R=power_of_two(width - latent_width),
                BLOCK_K=power_of_two(selected.shape[-1]),
                ADDS=begin > 0,
                PRECISION=precision(query),
                BLOCK_H=block_h,
                BLOCK_N=16 if wide else 64,
                num_warps=4,
                num_stages=2,
            )
    return out


@mean_probabilities_operator.register_fake
def _(query: Tensor, entry: Tensor, selected: Tensor, sums: Tensor, latent_width: int, scale: float) -> Tensor:
    return query.new_empty(selected.shape, dtype=torch.float32)


def _sizes(query: Tensor, selected: Tensor, backward: bool) -> dict[str, Any]:
    """What the divergence's kernels are compiled for. Products are [J, BLOCK_N] and the gradients [J, W] in registers."""
    heads, width = query.shape[2:]
    wide = query.element_size() == 4
    return {
        "W": width,
        "BLOCK_W": power_of_two(width),
        "BLOCK_J": power_of_two(heads),
        "BLOCK_K": power_of_two(selected.shape[-1]),
        "PRECISION": precision(query),
        "BLOCK_N": 16 if wide else 64,
        "num_warps": 4,
        "num_stages": 2 if wide or backward else 3,
    }


@torch.library.custom_op("ingot::chosen_divergence", mutates_args=())
def chosen_divergence_forward(
    query: Tensor, weight: Tensor, key: Tensor, selected: Tensor, target: Tensor
) -> tuple[Tensor, Tensor]:
    """The divergences [B, T], and log Σ e^I over the chosen keys [B, T]; `weight` is scaled already."""
    query, weight, key, selected, target = (x.contiguous() for x in (query, weight, key, selected, target))
    rows, tokens, heads, _ = query.shape
    out = torch.empty(rows, tokens, dtype=torch.float32, device=query.device)
    sums = torch.empty_like(out)
    if out.numel():
        with on_device_of(query):
            divergence_kernel[(rows * tokens,)](
                query,
                weight,
                key,
                selected,
                target,
                out,
                sums,
                tokens,
                heads,
                selected.shape[-1],
                key.shape[1],
                **_sizes(query, selected, backward=False),
            )
    return out, sums


@torch.library.custom_op("ingot::chosen_divergence_backward", mutates_args=())
def chosen_divergence_backward(
    query: Tensor, weight: Tensor, key: Tensor, selected: Tensor, target: Tensor, sums: Tensor, gradient: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of queries, scaled head weights and keys."""
    given = (query, weight, key, selected, target, sums, gradient.float())
    query, weight, key, selected, target, sums, gradient = (x.contiguous() for x in given)
    rows, tokens, heads, _ = query.shape
    of_query, of_weight = torch.empty_like(query), torch.empty_like(weight)
    of_key = torch.zeros(key.shape, dtype=torch.float32, device=key.device)
    if query.numel():
        with on_device_of(query):
            divergence_backward_kernel[(rows * tokens,)](
                query,
                weight,
                key,
                selected,
                target,
                sums,
                gradient,
                of_query,
                of_weight,
                of_key,
                tokens,
                heads,
                selected.shape[-1],
                key.shape[1],
                **_sizes(query, selected, backward=True),
            )
    return of_query, of_weight, of_key.to(key.dtype)


@chosen_divergence_forward.register_fake
def _(query: Tensor, weight: Tensor, key: Tensor, selected: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    shape = query.shape[:2]
    return query.new_empty(shape, dtype=torch.float32), query.new_empty(shape, dtype=torch.float32)


@chosen_divergence_backward.register_fake
def _(
    query: Tensor, weight: Tensor, key: Tensor, selected: Tensor, target: Tensor, sums: Tensor, gradient: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return query.new_empty(query.shape), weight.new_empty(weight.shape), key.new_empty(key.shape)


def _remember(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs, output[1])


def _differentiate(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return *chosen_divergence_backward(*ctx.saved_tensors, gradient), None, None


chosen_divergence_forward.register_autograd(_differentiate, setup_context=_remember)
