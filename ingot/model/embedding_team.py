"""Rows of a matrix by their numbers, with a gradient in memory that is kept from step to step (rooms.py).

torch makes the gradient of an embedding in new memory, whose pages the system first has to fill: 5 of the 6 ms that it takes for
a matrix of two million numbers.

Shapes: N tokens, V vocabulary, D width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding

from ingot.model import team
from ingot.model.rooms import new_room, rooms_are_kept


def look_up(tokens: Tensor, weight_VD: Tensor) -> Tensor:
    """torch's `embedding`; in a training run its gradient is made by a loop."""
    learns = torch.is_grad_enabled() and weight_VD.requires_grad
    if not learns or not team.team_can(weight_VD) or not rooms_are_kept() or tokens.dtype != torch.int64:
        return embedding(tokens, weight_VD)
    rows: Tensor = _LookUp.apply(weight_VD, tokens)  # type: ignore[no-untyped-call]
    return rows


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight_VD: Tensor, tokens: Tensor) -> Tensor:
        ctx.save_for_backward(tokens)
        ctx.shape = weight_VD.shape
        return embedding(tokens, weight_VD)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, up: Tensor) -> tuple[Tensor, None]:
        from ingot.model.embedding_team_loops import add_rows

        (tokens,) = ctx.saved_tensors
        d_weight_VD = new_room(*ctx.shape)
        team.run(add_rows, tokens.contiguous(), up.contiguous(), d_weight_VD, tokens.numel(), *ctx.shape)
        return d_weight_VD, None
