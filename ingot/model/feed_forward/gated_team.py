"""silu(gate) ⊙ up of [gate | up] and its gradient in one pass each, for training in float32 on a CPU.

    out = g σ(g) u        ∂u = ∂ · g σ(g)        ∂g = ∂ · u σ(g) (1 + g (1 − σ(g)))

`activate` in dense.py is the reference. Shapes: N tokens, F inner width; gate and up are the halves of a row of 2·F.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ingot.model import team
from ingot.model.rooms import new_room
from ingot.model.team import Memory, Stage


def gated_can(projected: Tensor) -> bool:
    """Whether the loops take this tensor: one that somebody differentiates."""
    return torch.is_grad_enabled() and projected.requires_grad and team.team_can(projected)


def gated_silu(projected: Tensor) -> Tensor:
    """silu(gate) ⊙ up [..., F] of [gate | up] [..., 2F]."""
    out: Tensor = _Gated.apply(projected)  # type: ignore[no-untyped-call]
    return out


def gate_forward(projected: Memory, out: Memory, tokens: int, width: int) -> Stage:
    """The same as a stage of a plan, for somebody who differentiates it himself: with `gate_backward`."""
    return _loops().forward, projected, out, tokens, width


def gate_backward(projected: Memory, up: Memory, out: Memory, tokens: int, width: int) -> Stage:
    """The gradient [N, 2F] of [gate | up] from that of the output."""
    return _loops().backward, projected, up, out, tokens, width


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, projected: Tensor) -> Tensor:
        projected = projected.contiguous()
        ctx.save_for_backward(projected)
        width = projected.shape[-1] // 2
        out = new_room(*projected.shape[:-1], width)
        team.run(*gate_forward(projected, out, out.numel() // width, width))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, up: Tensor) -> Tensor:
        (projected,) = ctx.saved_tensors
        out, width = new_room(*projected.shape), up.shape[-1]
        team.run(*gate_backward(projected, up.contiguous(), out, up.numel() // width, width))
        return out


@cache
def _loops() -> ModuleType:
    from ingot.model.feed_forward import gated_team_loops

    return gated_team_loops
