"""Triton kernel of qk_norm_rope.py, forward and backward, as an operator that torch.compile leaves whole.

A program has a block of tokens and up to HEADS heads of one section, one head after the other, so that it reads cos and sin
once. It works on pairs of channels: first the rotated ones, then the others, which are pairs rotated by an angle of 0.

    backward     ∂ = rotate back(∂);  then through the norm: x̂ = x·s,  s = (mean(x²) + ε)^-½,
                 ∂g = Σ ∂·x̂        ∂x = s·(g·∂ − x̂·mean(g·∂·x̂))

Every program makes one partial sum of the gains' gradients, and these are added in a fixed order: every run gives equal bits.

Shapes: B rows, T tokens, H query heads, K key and value heads, W head width, R rotated pairs, F = (H + 2K)·W.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ingot.kernels.launch import on_device_of

PAIRS, HEADS, WARPS = 1024, 8, 4  # pairs of channels at a time, heads and warps of a program


@triton.jit
def _load_pairs(source, inside, W: tl.constexpr, R: tl.constexpr, INTERLEAVED: tl.constexpr):
    """First and second channels of the pairs of the heads that begin at `source` [tokens, 1], in float32."""
    WIDTH: tl.constexpr = triton.next_power_of_2(W)
    if INTERLEAVED:
        channel = tl.arange(0, WIDTH)[None, :]
        both = tl.load(source + channel, mask=inside & (channel < W), other=0.0).to(tl.float32)
        first, second = tl.split(tl.reshape(both, [both.shape[0], WIDTH // 2, 2]))
    else:
        pair = tl.arange(0, WIDTH // 2)[None, :]
        inside = inside & (pair < W // 2)
        first = tl.load(source + tl.where(pair < R, pair, R + pair), mask=inside, other=0.0).to(tl.float32)
        second = tl.load(source + tl.where(pair < R, R, W // 2) + pair, mask=inside, other=0.0).to(tl.float32)
    return first, second


@triton.jit
def _store_pairs(target, first, second, inside, W: tl.constexpr, R: tl.constexpr, INTERLEAVED: tl.constexpr):
    """Store pairs in the heads that begin at `target`."""
    WIDTH: tl.constexpr = triton.next_power_of_2(W)
    first, second = first.to(target.dtype.element_ty), second.to(target.dtype.element_ty)
    if INTERLEAVED:
        channel = tl.arange(0, WIDTH)[None, :]
        both = tl.reshape(tl.join(first, second), [first.shape[0], WIDTH])
        tl.store(target + channel, both, mask=inside & (channel < W))
    else:
        pair = tl.arange(0, WIDTH // 2)[None, :]
        inside = inside & (pair < W // 2)
        tl.store(target + tl.where(pair < R, pair, R + pair), first, mask=inside)
        tl.store(target + tl.where(pair < R, R, W // 2) + pair, second, mask=inside)


@triton.jit
def _scale(first, second, epsilon, W: tl.constexpr):
    """The norm's factor of every token's head."""
    return tl.rsqrt(tl.sum(first * first + second * second, axis=1, keep_dims=True) / W + epsilon)


@triton.jit
def _section(
    projected,  # the section of this program's first token, likewise those below
    changed,
    part,
    token_stride,
    head_stride,
    cos,
    sin,
    cos_stride,
    gain,
    partial,
    epsilon,
    left,  # tokens from the first one to the end of the row
    group,
    COUNT: tl.constexpr,  # heads of the section
    F: tl.constexpr,
    W: tl.constexpr,
    R: tl.constexpr,
    TOKENS: tl.constexpr,
    HEADS: tl.constexpr,
    NORM: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    BACKWARD: tl.constexpr,
):
    """One program's heads: `part` from `projected`, or the gradient `changed` from the gradient `part`."""
    token = tl.arange(0, TOKENS)[:, None]
    pair = tl.arange(0, triton.next_power_of_2(W) // 2)[None, :]
    if R > 0:
        rotates = (token < left) & (pair < R)
        cosine = tl.load(cos + token * cos_stride + pair, mask=rotates, other=1.0)
        sine = tl.load(sin + token * cos_stride + pair, mask=rotates, other=0.0)
    if NORM:
        once = tl.arange(0, 1)[:, None]  # a block of one token
        first_gain, second_gain = _load_pairs(gain + once, once == 0, W, R, INTERLEAVED)
        first_sum = tl.zeros([TOKENS, triton.next_power_of_2(W) // 2], tl.float32)
        second_sum = first_sum
    SHARE: tl.constexpr = triton.cdiv(COUNT, triton.cdiv(COUNT, HEADS))  # all groups have as many heads, but the last
    for each in range(SHARE):
        head = group * SHARE + each
        inside = (token < left) & (head < COUNT)
        index = token * F + head * W
        heads = part + token * token_stride + head.to(tl.int64) * head_stride
        if BACKWARD:
            first, second = _load_pairs(heads, inside, W, R, INTERLEAVED)
            if R > 0:
                first, second = first * cosine + second * sine, second * cosine - first * sine
            if NORM:
                first_x, second_x = _load_pairs(projected + index, inside, W, R, INTERLEAVED)
                scale = _scale(first_x, second_x, epsilon, W)
                first_x, second_x = first_x * scale, second_x * scale
                first_sum, second_sum = first_sum + first * first_x, second_sum + second * second_x
                first, second = first * first_gain, second * second_gain
                mean = tl.sum(first * first_x + second * second_x, axis=1, keep_dims=True) / W
                first, second = scale * (first - first_x * mean), scale * (second - second_x * mean)
            _store_pairs(changed + index, first, second, inside, W, R, INTERLEAVED)
        else:
            first, second = _load_pairs(projected + index, inside, W, R, INTERLEAVED)
            if NORM:
                scale = _scale(first, second, epsilon, W)
                first, second = first * scale * first_gain, second * scale * second_gain
            if R > 0:
                first, second = first * cosine - second * sine, second * cosine + first * sine
            _store_pairs(heads, first, second, inside, W, R, INTERLEAVED)
    if NORM and BACKWARD:
        first_sum = tl.sum(first_sum, axis=0, keep_dims=True)
        second_sum = tl.sum(second_sum, axis=0, keep_dims=True)
        _store_pairs(partial + once, first_sum, second_sum, once == 0, W, R, INTERLEAVED)


@triton.jit
def qk_norm_rope_kernel(
    projected,  # [B, T, F]; in the backward pass only the norms read it
    changed,  # its gradient, written in the backward pass
    query,  # [B, T, H, W], written; in the backward pass the gradient, which is read
    key,
    value,
    query_strides,  # of row, token and head
    key_strides,
    value_strides,
    cos,  # [B, 1, T, R]
    sin,
    cos_strides,  # of row and token
    gains,  # [2, W], the queries' and the keys'
    partials,  # [blocks, groups, W], sums for the gradients of the gains
    epsilon,
    T,
    H: tl.constexpr,
    K: tl.constexpr,
    W: tl.constexpr,
    R: tl.constexpr,
    TOKENS: tl.constexpr,
    HEADS: tl.constexpr,
    NORM: tl.constexpr,
    INTERLEAVED: tl.constexpr,
    BACKWARD: tl.constexpr,
):
    QUERY_GROUPS: tl.constexpr = triton.cdiv(H, HEADS)
    KEY_GROUPS: tl.constexpr = triton.cdiv(K, HEADS)
    F: tl.constexpr = (H + 2 * K) * W
    group = tl.program_id(0) % (QUERY_GROUPS + 2 * KEY_GROUPS)
    block = tl.program_id(0) // (QUERY_GROUPS + 2 * KEY_GROUPS)
    row = (block // tl.cdiv(T, TOKENS)).to(tl.int64)
    start = (block % tl.cdiv(T, TOKENS)).to(tl.int64) * TOKENS
    left = (T - start).to(tl.int32)
    projected += (row * T + start) * F
    changed += (row * T + start) * F
    cos += row * cos_strides[0] + start * cos_strides[1]
    sin += row * cos_strides[0] + start * cos_strides[1]
    partial = partials + (block.to(tl.int64) * (QUERY_GROUPS + KEY_GROUPS) + group) * W
    if group < QUERY_GROUPS:
        query += row * query_strides[0] + start * query_strides[1]
        _section(
            projected, changed, query, query_strides[1], query_strides[2], cos, sin, cos_strides[1], gains, partial,
            epsilon, left, group, H, F, W, R, TOKENS, HEADS, NORM, INTERLEAVED, BACKWARD,
        )  # fmt: skip
    elif group < QUERY_GROUPS + KEY_GROUPS:
        key += row * key_strides[0] + start * key_strides[1]
        _section(
            projected + H * W, changed + H * W, key, key_strides[1], key_strides[2], cos, sin, cos_strides[1],
            gains + W, partial, epsilon, left, group - QUERY_GROUPS,
            K, F, W, R, TOKENS, HEADS, NORM, INTERLEAVED, BACKWARD,
        )  # fmt: skip
    else:
        value += row * value_strides[0] + start * value_strides[1]
        _section(
            projected + (H + K) * W, changed + (H + K) * W, value, value_strides[1], value_strides[2], cos, sin, 0,
            gains, partial, epsilon, left, group - QUERY_GROUPS - KEY_GROUPS,
            K, F, W, 0, TOKENS, HEADS, False, False, BACKWARD,
        )  # fmt: skip


def _launch(
    projected: Tensor,
    changed: Tensor,
    parts: tuple[Tensor, Tensor, Tensor],
    cos: Tensor,
    sin: Tensor,
    gains: Tensor | None,
    partials: Tensor,
    epsilon: float,
    interleaved: bool,
    *,
    backward: bool,
) -> None:
    """Both passes; what a pass does not use may be any tensor."""
    rows, tokens, heads, width = parts[0].shape
    key_heads, pairs = parts[1].shape[2], cos.shape[-1]
    cos, sin = (each.expand(rows, 1, tokens, pairs) for each in (cos, sin))
    if cos.stride() != sin.stride() or cos.stride(3) != 1:
        cos, sin = cos.contiguous(), sin.contiguous()
    blocks, (query_groups, key_groups) = _blocks(parts[0]), _groups(heads, key_heads)
    if blocks == 0:
        return
    with on_device_of(projected):
        qk_norm_rope_kernel[(blocks * (query_groups + 2 * key_groups),)](
            projected,
            changed,
            *parts,
            *(part.stride()[:3] for part in parts),
            cos,
            sin,
            (cos.stride(0), cos.stride(2)),
            partials if gains is None else gains,
            partials,
            epsilon,
            tokens,
            H=heads,
            K=key_heads,
            W=width,
            R=pairs,
            TOKENS=_tokens(width),
            HEADS=HEADS,
            NORM=gains is not None,
            INTERLEAVED=interleaved,
            BACKWARD=backward,
            num_warps=WARPS,
        )


def _tokens(width: int) -> int:
    """Tokens of a program."""
    return max(1, 2 * PAIRS // triton.next_power_of_2(width))


def _blocks(heads_BTHW: Tensor) -> int:
    """Blocks of tokens; none goes beyond its row."""
    rows, tokens, _, width = heads_BTHW.shape
    return rows * triton.cdiv(tokens, _tokens(width))


def _groups(heads: int, key_heads: int) -> tuple[int, int]:
    """Programs for the queries and for the keys of a block of tokens."""
    return triton.cdiv(heads, HEADS), triton.cdiv(key_heads, HEADS)


@torch.library.custom_op("ingot::qk_norm_rope", mutates_args=())
def qk_norm_rope_forward(
    projected: Tensor,
    cos: Tensor,
    sin: Tensor,
    gains: Tensor | None,
    heads: int,
    key_heads: int,
    epsilon: float,
    interleaved: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries [B, T, H, W], keys and values [B, T, K, W] of the projection [B, T, F].

    `cos` and `sin` are [B or 1, 1, T, R]; `gains` [2, W] in float32 are those of the queries' and the keys' norm.
    """
    projected = projected.contiguous()
    parts = _parts(projected, heads, key_heads)
    _launch(projected, projected, parts, cos, sin, gains, projected, epsilon, interleaved, backward=False)
    return parts


@torch.library.custom_op("ingot::qk_norm_rope_backward", mutates_args=())
def qk_norm_rope_backward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    projected: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    gains: Tensor | None,
    epsilon: float,
    interleaved: bool,
) -> tuple[Tensor, Tensor]:
    """The gradients of the projection and of the gains (none without norms), from those of queries, keys and values.

    Only a norm reads the projection itself.
    """
    query, key, value = (part if part.stride(3) == 1 else part.contiguous() for part in (query, key, value))
    changed, groups = _joint(query, key), _groups(query.shape[2], key.shape[2])
    partials = query.new_empty(0) if gains is None else gains.new_empty(_blocks(query), sum(groups), query.shape[3])
    source = changed if projected is None else projected.contiguous()
    _launch(source, changed, (query, key, value), cos, sin, gains, partials, epsilon, interleaved, backward=True)
    if gains is None:
        return changed, partials
    return changed, torch.stack([part.sum((0, 1)) for part in partials.split(groups, dim=1)])


def _parts(projected: Tensor, heads: int, key_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Empty queries, keys and values."""
    rows, tokens, joint = projected.shape
    width = joint // (heads + 2 * key_heads)
    query, key, value = (projected.new_empty(rows, tokens, count, width) for count in (heads, key_heads, key_heads))
    return query, key, value


def _joint(query: Tensor, key: Tensor) -> Tensor:
    """Empty the gradient of the projection."""
    rows, tokens, heads, width = query.shape
    return query.new_empty(rows, tokens, (heads + 2 * key.shape[2]) * width)


@qk_norm_rope_forward.register_fake
def _(
    projected: Tensor,
    cos: Tensor,
    sin: Tensor,
    gains: Tensor | None,
    heads: int,
    key_heads: int,
    epsilon: float,
    interleaved: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    return _parts(projected, heads, key_heads)


@qk_norm_rope_backward.register_fake
def _(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    projected: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    gains: Tensor | None,
    epsilon: float,
    interleaved: bool,
) -> tuple[Tensor, Tensor]:
    of_gains = query.new_empty(0) if gains is None else torch.empty_like(gains)
    return _joint(query, key), of_gains


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    projected, cos, sin, gains, _, _, ctx.epsilon, ctx.interleaved = inputs
    ctx.save_for_backward(None if gains is None else projected, cos, sin, gains)


def _differentiate(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor | None, ...]:
    projected, cos, sin, gains = ctx.saved_tensors
    of_projected, of_gains = qk_norm_rope_backward(
        query, key, value, projected, cos, sin, gains, ctx.epsilon, ctx.interleaved
    )
    return of_projected, None, None, None if gains is None else of_gains, None, None, None, None


qk_norm_rope_forward.register_autograd(_differentiate, setup_context=_remember)
