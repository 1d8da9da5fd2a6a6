"""The pass of sampling: the model's own modules, one after the other, with residual sums and norms in one kernel where it can be.

    x, h = x + y, norm(x + y);     y = mixer(h);     x, h = x + y, norm(x + y);     y = feed_forward(h);     …

is the pre-norm stack of `Transformer.hidden`, with the sum at the end of each part moved to the norm that follows. Blocks of any
other kind run as they are. Shapes: B rows, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ingot.model import norm_numba, norm_triton
from ingot.model.block import Block
from ingot.model.context import Context
from ingot.model.mixers.cache import Cache
from ingot.model.norm import RmsNorm
from ingot.model.transformer import Transformer


def states(
    model: Transformer,
    tokens_BT: Tensor,
    positions_BT: Tensor,
    caches: Sequence[Cache | None],
    *,
    slots: Tensor,
    pages: Tensor,
    lengths: Tensor | None = None,
    reach: int,
) -> Tensor:
    """States [B, T, D] after the last norm, as `model.hidden` gives them."""
    fused = norm_triton if tokens_BT.is_cuda else norm_numba
    context = Context(positions_BT, slots_B=slots, lengths_B=lengths, reach=reach, pages_BR=pages)
    x_BTD, y_BTD = model.embed(tokens_BT), None
    for block, cache in zip(model.blocks, caches, strict=True):
        assert isinstance(block, Block)
        if not _joins(block, x_BTD, fused.add_norm_can):
            x_BTD, y_BTD = block(_sum(x_BTD, y_BTD), context, cache), None
            continue
        if block.mixer is not None:
            assert block.mixer_norm is not None
            x_BTD, h_BTD = fused.add_norm(x_BTD, y_BTD, block.mixer_norm)
            y_BTD = block.mixer(h_BTD, context, cache)
        if block.feed_forward is not None:
            assert block.feed_forward_norm is not None
            x_BTD, h_BTD = fused.add_norm(x_BTD, y_BTD, block.feed_forward_norm)
            y_BTD = block.feed_forward(h_BTD, context)
    if fused.add_norm_can(model.norm, x_BTD):
        return fused.add_norm(x_BTD, y_BTD, model.norm)[1]
    states_BTD: Tensor = model.norm(_sum(x_BTD, y_BTD))
    return states_BTD


def _joins(block: Block, x: Tensor, can: Callable[[RmsNorm, Tensor], bool]) -> bool:
    """Whether the block is x + f(norm(x)) twice, with norms that can be joined with the sum."""
    norms = [
        norm
        for part, norm in ((block.mixer, "mixer_norm"), (block.feed_forward, "feed_forward_norm"))
        if part is not None
        for norm in [getattr(block, norm)]
    ]
    return block.config.residual == "pre" and all(isinstance(norm, RmsNorm) and can(norm, x) for norm in norms)


def _sum(x: Tensor, y: Tensor | None) -> Tensor:
    return x if y is None else torch.add(x, y)
