"""One layer of a decoding step in seven kernels: attention and a gated feed-forward, each before a residual sum.

    project → store → attend (→ join its splits) → add_product → project_gated → add_product

Shapes: B rows, T tokens, N = B·T, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ingot.inference.fused.product import Stream, add_product, product_can, project, project_gated
from ingot.inference.usual_layer import products_of
from ingot.model.block import Block
from ingot.model.context import Context
from ingot.model.feed_forward.dense import FeedForward
from ingot.model.mixers.attention import Attention
from ingot.model.mixers.cache import Cache, TokenCache
from ingot.model.norm import RmsNorm


def block_can(block: Block, x_BTD: Tensor, cache: Cache | None) -> bool:
    """Whether `fused_block` computes this layer of these rows."""
    if not x_BTD.is_cuda or x_BTD.dtype != torch.bfloat16:
        return False
    layers, rows = products_of(block, x_BTD, cache), x_BTD.shape[0] * x_BTD.shape[1]
    return layers is not None and all(product_can(layer, rows) for layer in layers)


def fused_block(block: Block, stream: Stream, context: Context, cache: TokenCache, following: RmsNorm) -> Stream:
    """The stream after the layer; it came with the gain of the layer's first norm, and leaves with that of `following`."""
    mixer, feed_forward, rows = block.mixer, block.feed_forward, context.positions_BT.shape
    assert isinstance(mixer, Attention) and isinstance(feed_forward, FeedForward)
    assert block.mixer_norm is not None and block.feed_forward_norm is not None
    projected_BTF = project(stream, block.mixer_norm, mixer.query_key_value).unflatten(0, rows)
    mixed_BHTW = mixer.attend_stored(projected_BTF, context, cache)
    mixed_NF = mixed_BHTW.transpose(1, 2).flatten(2).flatten(0, 1)
    stream = add_product(stream, mixed_NF, mixer.output, block.feed_forward_norm)
    inner_NF = project_gated(stream, block.feed_forward_norm, feed_forward.gate_up)
    return add_product(stream, inner_NF, feed_forward.down, following)
