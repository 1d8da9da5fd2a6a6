"""Neighbouring layers in one step of autograd, where the loops of a training run on a CPU take them (halves_team.py)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ingot.model.block import Block
from ingot.model.context import Context
from ingot.model.halves import Given, run_halves
from ingot.model.hooks import is_hooked

AT_ONCE = 4  # layers: what they keep is held until all of them are differentiated


def run_layers(blocks: Sequence[Block], x_BTD: Tensor, context: Context) -> tuple[Tensor, int]:
    """The residual stream after the first of these blocks, and how many that are: none, if the first is not for the loops."""
    given: list[Given] = []
    for block in blocks[:AT_ONCE]:
        halves = None if _is_special(block) else block.halves(x_BTD, context)
        if halves is None:
            break
        given += halves
    return (run_halves(x_BTD, given) if given else x_BTD), len(given) // 2


def _is_special(block: Block) -> bool:
    """Whether somebody has changed what calling the block does: by hooks, recomputation, or a compiler."""
    return is_hooked(block) or "forward" in vars(block) or block._compiled_call_impl is not None
