"""Causal attention over whole rows in float32 on an ARM CPU, with its gradient: compiled loops (attend_square_loops.py).

torch's own kernel there computes all scores of a row before it hides those of later keys, and its exponentials take as long as
its products. The loops leave the later keys out, and find p again from lse as attend_blocks.py does. Memory grows with T·W.

Shapes: B rows, H query heads, K key heads, T tokens, W width of a head.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ingot.model import team
from ingot.model.rooms import new_room
from ingot.model.team import Memory, Stage, Work

IS_ARM = platform.machine().lower() in ("aarch64", "arm64")  # the tiles are made for its registers
WIDTHS = 16  # a head has a multiple of this many channels
SHORTEST = 64  # rows of fewer tokens are faster in torch's kernel

Heads = tuple[Memory, int, int, int]  # where the first one is, and the strides of row, head and token


def square_can(query_BHTW: Tensor, key_BKTW: Tensor, value_BKTW: Tensor) -> bool:
    """Whether the loops take these: not too short, to be differentiated, and a row's key head for every thread."""
    tokens, width = query_BHTW.shape[2:]
    return (
        IS_ARM
        and width % WIDTHS == 0
        and tokens >= SHORTEST
        and torch.is_grad_enabled()
        and query_BHTW.requires_grad
        and team.team_can(query_BHTW, key_BKTW, value_BKTW)  # nobody compiles: a compiler stops at the next line
        and key_BKTW.shape[0] * key_BKTW.shape[1] >= torch.get_num_threads()
    )


def attend_square(query_BHTW: Tensor, key_BKTW: Tensor, value_BKTW: Tensor, *, scale: float) -> Tensor:
    """Attention [B, H, T, W], in memory ordered as [B, T, H, W]; keys and values have one width and count."""
    mixed: Tensor = _Square.apply(query_BHTW, key_BKTW, value_BKTW, scale)  # type: ignore[no-untyped-call]
    return mixed


class _Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        query, key, value = (_dense(each) for each in (query, key, value))
        out, lse = _like(query), new_room(*query.shape[:3])
        _run(loops().forward, [query, key, value, out, *[out] * 4], lse, scale)
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.scale = scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, up: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, out, lse = ctx.saved_tensors
        gradients = [_like(each) for each in (query, key, value)]
        _run(loops().backward, [query, key, value, out, _dense(up), *gradients], lse, ctx.scale)
        return (*gradients, None)


def _dense(x: Tensor) -> Tensor:
    """A tensor whose channels lie side by side."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _like(x_BHTW: Tensor) -> Tensor:
    rows, heads, tokens, width = x_BHTW.shape
    return new_room(rows, tokens, heads, width).transpose(1, 2)


def _run(loop: Any, tensors: list[Tensor], lse: Tensor, scale: float) -> None:
    rows, heads, tokens, width = tensors[0].shape
    placed: list[Heads] = [(each, each.stride(0), each.stride(1), each.stride(2)) for each in tensors]
    team.run(*square_stage(loop, placed, lse, (rows, heads, tensors[1].shape[1], tokens, width), scale))


def square_stage(
    loop: Any, given: Sequence[Heads], lse_BHT: Memory, shape: tuple[int, int, int, int, int], scale: float
) -> Stage:
    """One of the loops over B, H, K, T, W."""
    rows, heads, key_heads, tokens, width = shape
    queries = loops().QUERIES
    whole = -(-tokens // queries) * queries
    room = 5 * whole * width + 2 * queries * (whole + width) + queries
    numbers = [number for each in given for number in each]
    space = Work(torch.get_num_threads() * room)
    return loop, *numbers, lse_BHT, space, room, rows, key_heads, heads // key_heads, tokens, width, float(scale)


@cache
def loops() -> ModuleType:
    from ingot.model.mixers import attend_square_loops

    return attend_square_loops
