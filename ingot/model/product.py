"""Matrix products of training in float32 on an ARM CPU, by torch's own threads (product_loops.py).

    y = x Wᵀ        ∂x = ∂y W        ∂W = ∂yᵀ x

Two Neoverse N1 cores multiply 79.8 GFLOP/s at most. On the shapes of a small model the loops reach 72, libraries 70; but
products of our own write to memory that is kept (rooms.py), and many can run in one call (team_plan.py).

Shapes: M rows, K steps of the sum, N columns.
"""

from __future__ import annotations

import platform
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear

from ingot.model import team
from ingot.model.rooms import new_room, rooms_are_kept
from ingot.model.team import Memory, Stage, Work

IS_ARM = platform.machine().lower() in ("aarch64", "arm64")  # the tiles are made for its registers
# a matrix, how far its rows (its columns, on the right) are apart, and the steps of the sum
Factor = tuple[Memory, int, int]
FEWEST_ROWS = 64  # of fewer, packing the other matrix takes too long
FEWEST_PANELS = 4  # of columns for each thread, or some wait for others


def product_can(rows: int, inputs: int, outputs: int, *tensors: Tensor) -> bool:
    """Whether the loops multiply these tensors, whose product and gradients have these sizes: in a training run."""
    return (
        IS_ARM
        and rows >= FEWEST_ROWS
        and team.team_can(*tensors)  # nobody compiles: a compiler stops at the next lines
        and rooms_are_kept()
        and min(inputs, outputs) >= FEWEST_PANELS * 16 * torch.get_num_threads()
        and not torch.is_autocast_enabled("cpu")
    )


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """y = x Wᵀ + b: torch's `linear`, by the loops where somebody differentiates it and they take it."""
    outputs, inputs = weight.shape
    learns = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    if not learns or not product_can(x.numel() // max(inputs, 1), inputs, outputs, x, weight):
        return linear(x, weight, bias)
    y: Tensor = _Product.apply(x, weight)  # type: ignore[no-untyped-call]
    return y if bias is None else y + bias


def matrix_product(a_MK: Tensor, b_KN: Tensor, out_MN: Tensor, *, adds: bool = False) -> Tensor:
    """a b, written to `out` or added to it: by the loops while a training run uses them, else by torch."""
    if product_can(min(a_MK.shape), a_MK.shape[1], b_KN.shape[1], a_MK, b_KN, out_MN):
        return product(a_MK, b_KN, out_MN, adds=adds)
    return out_MN.addmm_(a_MK, b_KN) if adds else torch.mm(a_MK, b_KN, out=out_MN)


def product(a_MK: Tensor, b_KN: Tensor, out_MN: Tensor, *, adds: bool = False) -> Tensor:
    """The same by the loops, also of transposed matrices; rows of `out` are contiguous."""
    a_MK, b_KN = _with_neighbours(a_MK), _with_neighbours(b_KN)
    (a_side, a_k), (b_k, b_side) = a_MK.stride(), b_KN.stride()
    shape = (*a_MK.shape, b_KN.shape[1])
    team.run(*product_stage((a_MK, a_side, a_k), (b_KN, b_side, b_k), (out_MN, out_MN.stride(0)), shape, adds=adds))
    return out_MN


def product_stage(
    a: Factor, b: Factor, out: tuple[Memory, int], shape: tuple[int, int, int], *, adds: bool = False
) -> Stage:
    """The same for M, K and N as a stage of a plan; `out` comes with the distance of its rows."""
    rows, count, columns = shape
    depth, most, kept, room = _blocks(rows, count, columns, torch.get_num_threads())
    return _loops().multiply, *a, *b, *out, rows, columns, count, int(adds), Work(room), depth, most, kept


def project(x: Memory, weight: Memory, out: Memory, shape: tuple[int, int, int], *, adds: bool = False) -> Stage:
    """y = x Wᵀ, or y plus that, of contiguous x [M, K], W [N, K] and y: a stage of a plan."""
    _, count, columns = shape
    return product_stage((x, count, 1), (weight, count, 1), (out, columns), shape, adds=adds)


def project_back(
    up: Memory, x: Memory, weight: Memory, d_x: Memory, d_weight: Memory | None, shape: tuple[int, int, int]
) -> list[Stage]:
    """The gradients of x and, where it is wanted, of W from that of `project`."""
    rows, count, columns = shape
    stages = [product_stage((up, columns, 1), (weight, 1, count), (d_x, count), (rows, columns, count))]
    if d_weight is not None:
        stages.append(product_stage((up, 1, columns), (x, 1, count), (d_weight, count), (columns, rows, count)))
    return stages


@cache
def _blocks(rows: int, count: int, columns: int, threads: int) -> tuple[int, int, int, int]:
    """Steps and rows of a block, panels of columns that a thread keeps for all blocks of rows, floats of working memory."""
    loops = _loops()
    depth = min(loops.DEPTH, -(-count // loops.LANES) * loops.LANES)
    most = loops.RESIDENT // depth // loops.SIDES * loops.SIDES
    panels = -(-columns // loops.SIDES)
    kept = min(loops.PANELS, -(-panels // threads)) if rows <= most else -(-panels // threads)
    return depth, most, kept, loops.RESIDENT + threads * (loops.SIDES * depth * kept + loops.EDGE)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        x = x.contiguous()
        ctx.save_for_backward(x, weight)
        rows = x.numel() // x.shape[-1]
        out = new_room(*x.shape[:-1], len(weight))
        product(x.view(rows, -1), weight.T, out.view(rows, -1))
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, up: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        up_NO, x_NI = up.reshape(-1, len(weight)), x.view(-1, x.shape[-1])
        d_x, d_weight = None, None
        if ctx.needs_input_grad[0]:
            d_x = product(up_NO, weight, new_room(*x_NI.shape)).view_as(x)
        if ctx.needs_input_grad[1]:
            d_weight = product(up_NO.T, x_NI, new_room(*weight.shape))
        return d_x, d_weight


def _with_neighbours(matrix: Tensor) -> Tensor:
    """A matrix whose rows or columns lie side by side."""
    return matrix if 1 in matrix.stride() else matrix.contiguous()


@cache
def _loops() -> ModuleType:
    from ingot.model import product_loops

    return product_loops
