"""Triton kernels of dense_divergence.py, as operators that torch.compile leaves whole. A tile is BLOCK_T queries × BLOCK_S keys.

* `sums_kernel`: log₂ Σ 2^score of BLOCK_T queries of one head, over all their keys.
* `mean_kernel`: the heads' mean probability of a tile; the heads pass by.
* `row_kernel`: one query. Its divergence in one pass over p and I, since D = Σ p log p − Σ p I + log Σ e^I · Σ p; in a second one
  ∂I takes the place of I.
* `query_gradient_kernel`: ∂query and ∂weight of BLOCK_T queries of one head, over all their keys.
* `key_gradient_kernel`: the share of some heads in ∂key of BLOCK_S keys, over all queries; the shares are added in a fixed order.

With q·k once more, ∂(q·k)[t, s] = w_t ∂I[t, s] where q·k > 0. Every product's left side is loaded or made by elements: Triton 3.4
to 3.7.0 misreads one that was transposed in registers (key_gradients_kernel.py).

A head's W channels are WIDE = the largest power of two in W, and REST others. Scores of attention are powers of two, those of the
indexer natural logarithms. The indexer's scores themselves: select_keys_kernel.py.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ingot.kernels.attention.attend_paged import precision
from ingot.kernels.launch import on_device_of, power_of_two
from ingot.kernels.sparse.select_keys_kernel import launch_scores

NOTHING = tl.constexpr(-1e30)
ROW = 2048  # keys of a query that `row_kernel` reads at a time
SHARES = 4  # groups of heads in `key_gradient_kernel`: short rows have few tiles of keys


class DenseTile(NamedTuple):
    """Sizes of one program."""

    block_t: int  # queries
    block_s: int  # keys
    warps: int
    stages: int  # of the pipeline over heads, keys or queries


def choose_tile(part: str, bytes_per_number: int) -> DenseTile:
    """Of `part`: sums, mean, query or key. Products are float32 in registers, 64 KB at 128 × 128, as is a sum over heads."""
    if bytes_per_number == 4:
        return DenseTile(32, 32, warps=4, stages=1)
    return TILES[part]


TILES = {
    "sums": DenseTile(128, 64, warps=8, stages=3),
    "mean": DenseTile(128, 128, warps=8, stages=2),
    "query": DenseTile(128, 64, warps=8, stages=3),
    "key": DenseTile(64, 128, warps=8, stages=3),
}


@triton.jit
def _rows(at, inside, begin: tl.constexpr, width: tl.constexpr, BLOCK: tl.constexpr):
    """Channels [begin, begin + width) of the vectors at addresses `at`, zeros where not inside."""
    wide = tl.arange(0, BLOCK)
    there = inside[:, None] & (wide < width)[None, :]
    return tl.load(at[:, None] + (begin + wide)[None, :], mask=there, other=0.0)


@triton.jit
def _scores(
    asked,
    asked_rest,
    key_at,
    inside,
    WIDE: tl.constexpr,
    REST: tl.constexpr,
    BLOCK_REST: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """q·k of a tile; keys lie at `key_at`."""
    found = _rows(key_at, inside, 0, WIDE, WIDE)
    score = tl.dot(asked, tl.trans(found), input_precision=PRECISION)
    if REST > 0:
        rest = _rows(key_at, inside, WIDE, REST, BLOCK_REST)
        score = tl.dot(asked_rest, tl.trans(rest), score, input_precision=PRECISION)
    return score


@triton.jit
def _asked(at, inside, WIDE: tl.constexpr, REST: tl.constexpr, BLOCK_REST: tl.constexpr):
    """A tile of queries without and with rotation; without REST the same tile twice."""
    asked = _rows(at, inside, 0, WIDE, WIDE)
    if REST > 0:
        rest = _rows(at, inside, WIDE, REST, BLOCK_REST)
    else:
        rest = asked
    return asked, rest


@triton.jit
def _sight(first, last, row, place, tokens):
    """The first and the last key that each query sees; none where there is no query."""
    inside = place < tokens
    low = tl.load(first + row * tokens + place, mask=inside, other=2147483647)
    high = tl.load(last + row * tokens + place, mask=inside, other=-1)
    return low, high


@triton.jit
def sums_kernel(
    query,  # [B, H, T, W], any strides but the last
    key,  # [B, H, S, W], likewise
    first,  # [B, T]
    last,  # [B, T]
    out,  # [B, H, T]
    tokens,
    heads,
    scale,  # of scores in powers of two
    query_b,
    query_h,
    query_t,
    key_b,
    key_h,
    key_s,
    WIDE: tl.constexpr,
    REST: tl.constexpr,
    BLOCK_REST: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_S: tl.constexpr,
):
    row = (tl.program_id(1) // heads).to(tl.int64)
    head = (tl.program_id(1) % heads).to(tl.int64)
    place = tl.program_id(0) * BLOCK_T + tl.arange(0, BLOCK_T)
    low, high = _sight(first, last, row, place, tokens)
    begin, end = tl.min(low, 0) // BLOCK_S * BLOCK_S, tl.max(high, 0) + 1
    at = query + row * query_b + head * query_h + place.to(tl.int64) * query_t
    asked, asked_rest = _asked(at, place < tokens, WIDE, REST, BLOCK_REST)
    key += row * key_b + head * key_h
    largest = tl.full((BLOCK_T,), NOTHING, dtype=tl.float32)
    total = tl.zeros((BLOCK_T,), dtype=tl.float32)
    for start in range(begin, end, BLOCK_S):
        column = start + tl.arange(0, BLOCK_S)
        key_at = key + column.to(tl.int64) * key_s
        score = _scores(asked, asked_rest, key_at, column < end, WIDE, REST, BLOCK_REST, PRECISION) * scale
        seen = (column[None, :] >= low[:, None]) & (column[None, :] <= high[:, None])
        score = tl.where(seen, score, -float("inf"))
        larger = tl.maximum(largest, tl.max(score, 1))
        total = total * tl.exp2(largest - larger) + tl.sum(tl.exp2(score - larger[:, None]), 1)
        largest = larger
    result = largest + tl.log2(tl.where(total > 0, total, 1.0))
    tl.store(out + (row * heads + head) * tokens + place, result, mask=place < tokens)


@triton.jit
def mean_kernel(
    query,
    key,
    first,
    last,
    sums,  # [B, H, T]
    out,  # [B, T, S], zeros
    tokens,
    heads,
    keys,
    scale,
    query_b,
    query_h,
    query_t,
    key_b,
    key_h,
    key_s,
    WIDE: tl.constexpr,
    REST: tl.constexpr,
    BLOCK_REST: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_S: tl.constexpr,
):
    row = tl.program_id(2).to(tl.int64)
    place = tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
    start = tl.program_id(0) * BLOCK_S
    column = start + tl.arange(0, BLOCK_S)
    low, high = _sight(first, last, row, place, tokens)
    if (start > tl.max(high, 0)) | (start + BLOCK_S <= tl.min(low, 0)):
        return
    at = query + row * query_b + place.to(tl.int64) * query_t
    key_at = key + row * key_b + column.to(tl.int64) * key_s
    sums += row * heads * tokens + place
    mean = tl.zeros((BLOCK_T, BLOCK_S), dtype=tl.float32)
    for head in range(heads):
        asked, asked_rest = _asked(at, place < tokens, WIDE, REST, BLOCK_REST)
        score = _scores(asked, asked_rest, key_at, column < keys, WIDE, REST, BLOCK_REST, PRECISION) * scale
        total = tl.load(sums + head * tokens, mask=place < tokens, other=0.0)
        mean += tl.exp2(score - total[:, None])
        at += query_h
        key_at += key_h
    seen = (column[None, :] >= low[:, None]) & (column[None, :] <= high[:, None])
    to = out + (row * tokens + place)[:, None] * keys + column[None, :]
    tl.store(to, mean / heads, mask=seen)


@triton.jit
def row_kernel(
    scores,  # [B, T, S]: I, and afterwards ∂I
    target,  # [B, T, S]
    first,  # [B · T]
    last,
    counted,  # [B · T]
    out,  # [B · T]
    keys,
    WANTS_GRADIENT: tl.constexpr,
    BLOCK_S: tl.constexpr,
):
    item = tl.program_id(0).to(tl.int64)
    low, high, share = tl.load(first + item), tl.load(last + item), tl.load(counted + item)
    begin, end = low // BLOCK_S * BLOCK_S, tl.where(share != 0, high + 1, 0)
    scores += item * keys
    target += item * keys
    largest = tl.full((BLOCK_S,), NOTHING, dtype=tl.float32)  # of each of the BLOCK_S places; they meet at the end
    total = tl.zeros((BLOCK_S,), dtype=tl.float32)
    gap = tl.zeros((BLOCK_S,), dtype=tl.float32)
    mass = tl.zeros((BLOCK_S,), dtype=tl.float32)
    for start in range(begin, end, BLOCK_S):
        column = start + tl.arange(0, BLOCK_S)
        seen = (column >= low) & (column < end)
        score = tl.load(scores + column, mask=seen, other=-float("inf"))
        wanted = tl.load(target + column, mask=seen, other=0.0)
        gap += tl.where(wanted > 0, wanted * (tl.log(tl.where(wanted > 0, wanted, 1.0)) - score), 0.0)
        mass += wanted
        larger = tl.maximum(largest, score)
        total = total * tl.exp(largest - larger) + tl.exp(score - larger)
        largest = larger
    peak = tl.max(largest, 0)
    whole = tl.sum(total * tl.exp(largest - peak), 0)
    normaliser = tl.where(whole > 0, peak + tl.log(tl.where(whole > 0, whole, 1.0)), 0.0)
    all_mass = tl.sum(mass, 0)
    tl.store(out + item, share * (tl.sum(gap, 0) + normaliser * all_mass))
    if WANTS_GRADIENT:
        end = high + 1
        for start in range(begin, end, BLOCK_S):
            column = start + tl.arange(0, BLOCK_S)
            seen = (column >= low) & (column < end)
            score = tl.load(scores + column, mask=seen, other=-float("inf"))
            wanted = tl.load(target + column, mask=seen, other=0.0)
            change = tl.where(share != 0, share * (tl.exp(score - normaliser) * all_mass - wanted), 0.0)
            tl.store(scores + column, change, mask=seen)


@triton.jit
def query_gradient_kernel(
    query,  # [B, T, J, V], contiguous as all others
    weight,  # [B, J, T], scaled, float32
    key,  # [B, S, V]
    first,  # [B, T]
    last,
    changes,  # [B, T, S]: ∂I
    of_query,  # [B, T, J, V]
    of_weight,  # [B, J, T], float32
    tokens,
    heads,
    keys,
    V: tl.constexpr,
    BLOCK_V: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_S: tl.constexpr,
):
    head = tl.program_id(0)  # heads follow each other: they read the same ∂I
    row = tl.program_id(2).to(tl.int64)
    place = tl.program_id(1) * BLOCK_T + tl.arange(0, BLOCK_T)
    inside = place < tokens
    low, high = _sight(first, last, row, place, tokens)
    begin, end = tl.min(low, 0) // BLOCK_S * BLOCK_S, tl.max(high, 0) + 1
    at = ((row * tokens + place) * heads + head) * V
    asked = _rows(query + at, inside, 0, V, BLOCK_V)
    key += row * keys * V
    changes += (row * tokens + place)[:, None] * keys
    of_asked = tl.zeros((BLOCK_T, BLOCK_V), dtype=tl.float32)
    of_share = tl.zeros((BLOCK_T,), dtype=tl.float32)
    for start in range(begin, end, BLOCK_S):
        column = start + tl.arange(0, BLOCK_S)
        found = _rows(key + column.to(tl.int64) * V, column < end, 0, V, BLOCK_V)
        seen = (column[None, :] >= low[:, None]) & (column[None, :] <= high[:, None])
        change = tl.load(changes + column[None, :], mask=seen, other=0.0)
        product = tl.dot(asked, tl.trans(found), input_precision=PRECISION)
        change = tl.where(product > 0, change, 0.0)
        of_share += tl.sum(product * change, 1)
        of_asked = tl.dot(change.to(found.dtype), found, of_asked, input_precision=PRECISION)
    share = tl.load(weight + (row * heads + head) * tokens + place, mask=inside, other=0.0)
    wide = tl.arange(0, BLOCK_V)
    to = (of_query + at)[:, None] + wide[None, :]
    of_asked = (of_asked * share[:, None]).to(of_query.dtype.element_ty)
    tl.store(to, of_asked, mask=inside[:, None] & (wide < V)[None, :])
    tl.store(of_weight + (row * heads + head) * tokens + place, of_share, mask=inside)


@triton.jit
def key_gradient_kernel(
    query,
    weight,
    key,
    first,
    last,
    changes,
    of_key,  # [shares, B, S, V], float32
    tokens,
    heads,
    keys,
    share_heads,  # of a share
    V: tl.constexpr,
    BLOCK_V: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_T: tl.constexpr,
    BLOCK_S: tl.constexpr,
):
    part = tl.program_id(1)
    row = tl.program_id(2).to(tl.int64)
    column = tl.program_id(0) * BLOCK_S + tl.arange(0, BLOCK_S)
    found = _rows(key + (row * keys + column) * V, column < keys, 0, V, BLOCK_V)
    of_found = tl.zeros((BLOCK_S, BLOCK_V), dtype=tl.float32)
    for start in range(0, tokens, BLOCK_T):
        place = start + tl.arange(0, BLOCK_T)
        inside = place < tokens
        low, high = _sight(first, last, row, place, tokens)
        if (tl.min(low, 0) < (tl.program_id(0) + 1) * BLOCK_S) & (tl.max(high, 0) >= tl.program_id(0) * BLOCK_S):
            seen = (column[:, None] >= low[None, :]) & (column[:, None] <= high[None, :])
            change = tl.load(changes + (row * tokens + place)[None, :] * keys + column[:, None], mask=seen, other=0.0)
            for head in range(part * share_heads, tl.minimum(part * share_heads + share_heads, heads)):
                at = query + ((row * tokens + place) * heads + head) * V
                asked = _rows(at, inside, 0, V, BLOCK_V)
                share = tl.load(weight + (row * heads + head) * tokens + place, mask=inside, other=0.0)
                product = tl.dot(found, tl.trans(asked), input_precision=PRECISION)
                of_product = tl.where(product > 0, change * share[None, :], 0.0).to(asked.dtype)
                of_found = tl.dot(of_product, asked, of_found, input_precision=PRECISION)
    wide = tl.arange(0, BLOCK_V)
    to = of_key + ((part * tl.num_programs(2) + row) * keys + column)[:, None] * V + wide[None, :]
    tl.store(to, of_found, mask=(column < keys)[:, None] & (wide < V)[None, :])


@torch.library.custom_op("ingot::mean_of_heads", mutates_args=())
def mean_of_heads(query: Tensor, key: Tensor, first: Tensor, last: Tensor, scale: float) -> Tensor:
    """p [B, T, S] in float32, zeros where a query does not see."""
    query, key = (x if x.stride(-1) == 1 else x.contiguous() for x in (query, key))
    first, last = first.int().contiguous(), last.int().contiguous()
    (rows, heads, tokens, width), keys = query.shape, key.shape[2]
    out = torch.zeros(rows, tokens, keys, dtype=torch.float32, device=query.device)
    if not out.numel():
        return out
    sums = torch.empty(rows, heads, tokens, dtype=torch.float32, device=query.device)
    wide = max(16, 1 << (width.bit_length() - 1))
    rest = max(0, width - wide)
    strides = (*query.stride()[:3], *key.stride()[:3])
    sizes: dict[str, Any] = {
        "WIDE": wide,
        "REST": rest,
        "BLOCK_REST": power_of_two(rest),
        "PRECISION": precision(query),
    }
    scale *= math.log2(math.e)
    with on_device_of(query):
        tile = choose_tile("sums", query.element_size())
        grid = (triton.cdiv(tokens, tile.block_t), rows * heads)
        given = (query, key, first, last)
        sums_kernel[grid](*given, sums, tokens, heads, scale, *strides, **sizes, **_blocks(tile))
        tile = choose_tile("mean", query.element_size())
        tiles = (triton.cdiv(keys, tile.block_s), triton.cdiv(tokens, tile.block_t), rows)
        mean_kernel[tiles](*given, sums, out, tokens, heads, keys, scale, *strides, **sizes, **_blocks(tile))
    return out


@mean_of_heads.register_fake
def _(query: Tensor, key: Tensor, first: Tensor, last: Tensor, scale: float) -> Tensor:
    rows, _, tokens, _ = query.shape
    return query.new_empty(rows, tokens, key.shape[2], dtype=torch.float32)


def sum_of_divergences(
    query_BTJV: Tensor,
    weight_BTJ: Tensor,
    key_BSV: Tensor,
    first_BT: Tensor,
    last_BT: Tensor,
    target_BTS: Tensor,
    counted_BT: Tensor,
) -> Tensor:
    """Σ_t D_t over the tokens that count, in float32."""
    scaled_BJT = (weight_BTJ.float() * (query_BTJV.shape[2] * query_BTJV.shape[3]) ** -0.5).transpose(1, 2)
    given = (query_BTJV, scaled_BJT, key_BSV, first_BT, last_BT, target_BTS, counted_BT.float())
    return sum_and_gradients(*given, torch.is_grad_enabled())[0]


@torch.library.custom_op("ingot::sum_of_divergences", mutates_args=())
def sum_and_gradients(
    query: Tensor,
    weight: Tensor,
    key: Tensor,
    first: Tensor,
    last: Tensor,
    target: Tensor,
    counted: Tensor,
    wants_gradients: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The sum, and its gradients by queries, scaled weights [B, J, T] and keys where they are wanted."""
    inputs = (query, weight, key.to(query.dtype), first.int(), last.int(), target, counted)
    query, weight, narrow, first, last, target, counted = (x.contiguous() for x in inputs)
    (rows, tokens, heads, width), keys = query.shape, key.shape[1]
    scores = torch.empty(rows, tokens, keys, dtype=torch.float32, device=query.device)
    divergence = torch.empty(rows, tokens, dtype=torch.float32, device=query.device)
    shape = (SHARES if heads >= SHARES else 1, *key.shape)
    gradients = torch.empty_like(query), torch.empty_like(weight), key.new_empty(shape, dtype=torch.float32)
    of_query, of_weight, of_key = gradients if wants_gradients else (x.new_empty(0) for x in gradients)
    if not scores.numel():
        return divergence.sum(), of_query.zero_(), of_weight.zero_(), of_key.zero_().sum(0).to(key.dtype)
    launch_scores(query, weight, narrow, first, last, scores, begin=0)
    sizes = {"V": width, "BLOCK_V": power_of_two(width), "PRECISION": precision(query)}
    with on_device_of(query):
        row_kernel[(rows * tokens,)](
            scores,
            target,
            first,
            last,
            counted,
            divergence,
            keys,
            WANTS_GRADIENT=wants_gradients,
            BLOCK_S=min(ROW, power_of_two(keys)),
            num_warps=4,
        )
        if wants_gradients:
            given = (query, weight, narrow, first, last, scores)
            tile = choose_tile("query", query.element_size())
            grid = (heads, triton.cdiv(tokens, tile.block_t), rows)
            query_gradient_kernel[grid](*given, of_query, of_weight, tokens, heads, keys, **sizes, **_blocks(tile))
            tile = choose_tile("key", query.element_size())
            grid = (triton.cdiv(keys, tile.block_s), len(of_key), rows)
            share = triton.cdiv(heads, len(of_key))
            key_gradient_kernel[grid](*given, of_key, tokens, heads, keys, share, **sizes, **_blocks(tile))
    return divergence.sum(), of_query, of_weight, of_key.sum(0).to(key.dtype)


@sum_and_gradients.register_fake
def _(
    query: Tensor,
    weight: Tensor,
    key: Tensor,
    first: Tensor,
    last: Tensor,
    target: Tensor,
    counted: Tensor,
    wants_gradients: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    total = query.new_empty((), dtype=torch.float32)
    if not wants_gradients:
        return total, query.new_empty(0), weight.new_empty(0), key.new_empty(())
    return total, query.new_empty(query.shape), weight.new_empty(weight.shape), key.new_empty(key.shape)


def _blocks(tile: DenseTile) -> dict[str, int]:
    return {"BLOCK_T": tile.block_t, "BLOCK_S": tile.block_s, "num_warps": tile.warps, "num_stages": tile.stages}


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output[1:])
    ctx.set_materialize_grads(False)  # of the gradients


def _differentiate(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    of_query, of_weight, of_key = ctx.saved_tensors
    return of_query * gradient, of_weight * gradient, of_key * gradient, None, None, None, None, None


sum_and_gradients.register_autograd(_differentiate, setup_context=_remember)
