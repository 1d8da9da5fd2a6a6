"""Triton: from the joint projection [queries | keys | values] to turned heads, and back to its gradient, in one pass each.

    forward      q = turn(norm(q))     k = turn(norm(k))     v = v       (turn: rope.py; norms, per head, only if there are gains)
    backward     ∂ = turn back(∂);  then through the norm: x̂ = x·s,  s = (mean(x²) + ε)^-½,
                 ∂g = Σ ∂·x̂        ∂x = s·(g·∂ − x̂·mean(g·∂·x̂))

A compiler makes the same of `_project` and `_place` in mixers/attention.py, which are the reference, but in several kernels:
splits, transposed copies, rotations, and a concatenation for the gradient. Everything is computed in float32 and rounded once.
Every program makes one partial sum of the gains' gradients, and these are added in a fixed order: each run gives the same.
Operators of their own, so that compiled blocks take them as they are. tests/model/positions/test_place_cuda.py compares values
and gradients.

Shapes: B rows, T tokens, H query heads, K key and value heads, W head width, R pairs that turn, F = (H + 2K)·W.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from ingot.model.positions.place_kernel import place_kernel

PAIRS, HEADS, WARPS = 1024, 8, 4  # pairs of channels at a time, heads and warps of a program


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
    with torch.cuda.device_of(projected):
        place_kernel[(blocks * (query_groups + 2 * key_groups),)](
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


@torch.library.custom_op("ingot::place_heads", mutates_args=())
def place_heads(
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


@torch.library.custom_op("ingot::place_heads_backward", mutates_args=())
def place_heads_backward(
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
    """Room for queries, keys and values."""
    rows, tokens, joint = projected.shape
    width = joint // (heads + 2 * key_heads)
    query, key, value = (projected.new_empty(rows, tokens, count, width) for count in (heads, key_heads, key_heads))
    return query, key, value


def _joint(query: Tensor, key: Tensor) -> Tensor:
    """Room for the gradient of the projection."""
    rows, tokens, heads, width = query.shape
    return query.new_empty(rows, tokens, (heads + 2 * key.shape[2]) * width)


@place_heads.register_fake
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


@place_heads_backward.register_fake
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
    of_projected, of_gains = place_heads_backward(
        query, key, value, projected, cos, sin, gains, ctx.epsilon, ctx.interleaved
    )
    return of_projected, None, None, None if gains is None else of_gains, None, None, None, None


place_heads.register_autograd(_differentiate, setup_context=_remember)
