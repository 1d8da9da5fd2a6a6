"""Differentiable exchanges between the ranks of a group, for forward and backward passes.

    enter   forward: nothing                      backward: the sum over the ranks
    leave   forward: the sum over the ranks       backward: nothing
    share   forward: 1/N of it                    backward: nothing

`enter` comes before what all ranks hold alike and each uses for its own part of a result, `leave` after the parts, where
they are added up again (f and g of Megatron-LM, arXiv 1909.08053).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, distributed

from ingot.model.context_parallel import all_gather as gather_flat


def enter(x: Tensor, group: distributed.ProcessGroup) -> Tensor:
    """`x`, whose gradient is summed over the ranks."""
    return _Enter.apply(x, group)  # type: ignore[no-untyped-call]


def leave(x: Tensor, group: distributed.ProcessGroup) -> Tensor:
    """The sum of `x` over the ranks; every rank takes the sum's gradient as that of its `x`."""
    return _Leave.apply(x, group)  # type: ignore[no-untyped-call]


def share(x: Tensor, group: distributed.ProcessGroup) -> Tensor:
    """`x` divided by the number of ranks, with the gradient of `x`: for what is the same everywhere inside a sum over ranks."""
    return _Share.apply(x, group)  # type: ignore[no-untyped-call]


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: distributed.ProcessGroup) -> Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _sum(gradient, ctx.group), None


class _Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: distributed.ProcessGroup) -> Tensor:
        return _sum(x, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


class _Share(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: distributed.ProcessGroup) -> Tensor:
        return x / group.size()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


def mean(x: Tensor, group: distributed.ProcessGroup) -> Tensor:
    """The mean of `x` over the ranks; no gradient."""
    return _sum(x.detach(), group) / group.size()


def all_gather(x: Tensor, group: distributed.ProcessGroup) -> Tensor:
    """The ranks' tensors stacked along a new first axis; no gradient."""
    parts = x.new_empty(group.size(), *x.shape)
    gather_flat(parts.view(-1), x.reshape(-1), group=group)
    return parts


def _sum(x: Tensor, group: distributed.ProcessGroup) -> Tensor:
    summed = x.clone(memory_format=torch.contiguous_format)
    distributed.all_reduce(summed, group=group)
    return summed
