"""Rotations of rope.py in one pass, for training in float32 on a CPU; the gradient turns the other way.

Shapes: B rows, H heads, T tokens, W width, R turned pairs of channels.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ingot.model import team
from ingot.model.rooms import new_room
from ingot.model.team import Memory, Stage


def rotate_can(x_BHTW: Tensor, cos: Tensor) -> bool:
    """Whether the loop takes these: heads that turn with all their channels, and that somebody differentiates."""
    whole = x_BHTW.dim() == 4 and x_BHTW.shape[-1] == 2 * cos.shape[-1]
    return whole and torch.is_grad_enabled() and x_BHTW.requires_grad and team.team_can(x_BHTW, cos)


def rotate(x_BHTW: Tensor, cos_B1TR: Tensor, sin_B1TR: Tensor, interleaved: bool) -> Tensor:
    """The turned heads, in memory ordered as [B, T, H, W]."""
    out: Tensor = _Rotate.apply(x_BHTW, cos_B1TR, sin_B1TR, interleaved)  # type: ignore[no-untyped-call]
    return out


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
        shape = (len(x), 1, x.shape[2], cos.shape[-1])
        cos, sin = (each.expand(shape).contiguous() for each in (cos, sin))
        ctx.save_for_backward(cos, sin)
        ctx.interleaved = interleaved
        return _turn(x, cos, sin, interleaved, 1.0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, up: Tensor) -> tuple[Tensor | None, ...]:
        cos, sin = ctx.saved_tensors
        return _turn(up, cos, sin, ctx.interleaved, -1.0), None, None, None


def turn_heads(
    x: tuple[Memory, int],
    out: tuple[Memory, int],
    cos_BTR: Memory,
    sin_BTR: Memory,
    shape: tuple[int, int, int],
    *,
    interleaved: bool,
    back: bool,
) -> Stage:
    """Turn the first heads of each token of x into the first ones of out, each with its features a token: a stage of a plan.

    The shape is of tokens, heads, and their width; where cos and sin are for every token there is no need to know rows.
    """
    (source, features), (target, target_features), (tokens, heads, width) = x, out, shape
    sizes = (1, tokens, heads, width, 0, features, width)
    sign = -1.0 if back else 1.0
    return _loop(), source, cos_BTR, sin_BTR, target, *sizes, int(interleaved), sign, target_features


def _turn(x_BHTW: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, sign: float) -> Tensor:
    x_BTHW = x_BHTW.transpose(1, 2)
    x_BTHW = x_BTHW if x_BTHW.stride(-1) == 1 else x_BTHW.contiguous()
    rows, tokens, heads, width = x_BTHW.shape
    out_BTHW = new_room(*x_BTHW.shape)
    sizes = (rows, tokens, heads, width, *x_BTHW.stride()[:3])
    team.run(_loop(), x_BTHW, cos, sin, out_BTHW, *sizes, int(interleaved), sign, heads * width)
    return out_BTHW.transpose(1, 2)


@cache
def _loop() -> Any:
    from ingot.model.positions.rope_team_loops import turn

    return turn
