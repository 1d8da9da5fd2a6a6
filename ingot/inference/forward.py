"""The pass of sampling: the model's own modules, one after the other, with residual sums and norms in one kernel where it can be.

    x, h = x + y, norm(x + y);     y = mixer(h);     x, h = x + y, norm(x + y);     y = feed_forward(h);     …

is the pre-norm stack of `Transformer.hidden`, with the sum at the end of each part moved to the norm that follows. On a GPU few
rows of a small model's usual layer go through kernels of their own (fused/), on an ARM CPU all layers through one call
(few_rows/stack.py). Blocks of any other kind run as they are.
Shapes: B rows, T tokens, D width.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ingot.inference.few_rows.stack import stack_can, stack_states
from ingot.inference.fused.block import block_can, fused_block
from ingot.inference.fused.product import Stream, begin
from ingot.model import norm_numba, norm_triton
from ingot.model.block import Block
from ingot.model.context import Context
from ingot.model.mixers.cache import Cache, TokenCache
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
    joins = fused.add_norm_can(model.norm, x_BTD)  # the norms of a model are all of a kind
    if joins and stack_can(model.blocks, caches, x_BTD):
        return stack_states(model.blocks, caches, x_BTD, context, model.norm)
    stream: Stream | None = None  # x, where the last block was a fused one
    for number, (block, cache) in enumerate(zip(model.blocks, caches, strict=True)):
        assert isinstance(block, Block)
        if joins and block_can(block, x_BTD, cache):
            assert block.mixer_norm is not None and isinstance(cache, TokenCache)
            if stream is None:
                stream = begin(_sum(x_BTD, y_BTD).flatten(0, 1), block.mixer_norm)
            stream = fused_block(block, stream, context, cache, _first_norm(model, number + 1))
            x_BTD, y_BTD = stream.x.view_as(x_BTD), None
            continue
        stream = None
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


def _first_norm(model: Transformer, number: int) -> RmsNorm:
    """The norm that the stream meets after the blocks before `number`. If that block is not a fused one, its gain is not used."""
    if number == len(model.blocks):
        return model.norm
    block = model.blocks[number]
    assert isinstance(block, Block)
    norm = block.mixer_norm if block.mixer is not None else block.feed_forward_norm
    return model.norm if norm is None else norm


def _sum(x: Tensor, y: Tensor | None) -> Tensor:
    return x if y is None else torch.add(x, y)
