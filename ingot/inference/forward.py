"""The pass of sampling: the model's own modules, one after the other, with residual sums and norms in one kernel where it can be.

    x, h = x + y, norm(x + y);     y = mixer(h);     x, h = x + y, norm(x + y);     y = feed_forward(h);     …

is the pre-norm stack of `Transformer.hidden`, with the sum at the end of each part moved to the norm that follows. Blocks of any
other kind run as they are. Shapes: B rows, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ingot.model import norm_numba, norm_triton
from ingot.model.block import Block
from ingot.model.context import Context
from ingot.model.mixers.cache import Cache
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
    joins = fused.add_norm_can(model.norm, x_BTD)  # the norms of a model are all of a kind
    for block, cache in zip(model.blocks, caches, strict=True):
        assert isinstance(block, Block)
        if not joins or block.config.residual != "pre":
            x_BTD, y_BTD = block(_sum(x_BTD, y_BTD), context, cache), None
            continue
        mixer, feed_forward = block.mixer, block.feed_forward
        if mixer is not None:
            x_BTD, h_BTD = fused.add_norm(x_BTD, y_BTD, block.mixer_norm)
            y_BTD = mixer(h_BTD, context, cache)
        if feed_forward is not None:
            x_BTD, h_BTD = fused.add_norm(x_BTD, y_BTD, block.feed_forward_norm)
            y_BTD = feed_forward(h_BTD, context)
    if joins:
        return fused.add_norm(x_BTD, y_BTD, model.norm)[1]
    states_BTD: Tensor = model.norm(_sum(x_BTD, y_BTD))
    return states_BTD


def _sum(x: Tensor, y: Tensor | None) -> Tensor:
    return x if y is None else torch.add(x, y)
