"""The usual layer: attention and a SwiGLU, each after a norm and before a residual sum.

Two ways run such a layer as a whole: fused/ on a GPU, few_rows/stack.py on an ARM CPU. What they ask of it in common is here.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn import Module, Parameter

from ingot.model.block import Block
from ingot.model.feed_forward.dense import FeedForward, is_swiglu
from ingot.model.hooks import is_hooked
from ingot.model.linear import Linear
from ingot.model.mixers.attention import Attention
from ingot.model.mixers.cache import Cache, TokenCache
from ingot.model.mixers.store import store_can


def products_of(block: Module, x_BTD: Tensor, cache: Cache | None) -> tuple[Linear, Linear, Linear, Linear] | None:
    """The layer's four products, in their order; None if it is not a usual one, or somebody listens to its parts."""
    assert isinstance(block, Block)
    mixer, feed_forward = block.mixer, block.feed_forward
    if not (isinstance(mixer, Attention) and isinstance(feed_forward, FeedForward) and isinstance(cache, TokenCache)):
        return None
    if block.config.residual != "pre" or mixer.config.gate is not None or not store_can(mixer, x_BTD, cache):
        return None
    if not is_swiglu(feed_forward.config) or feed_forward.config.output_multiplier != 1:
        return None
    if is_hooked(mixer) or is_hooked(feed_forward):
        return None
    return mixer.query_key_value, mixer.output, feed_forward.gate_up, feed_forward.down


def is_plain(layer: Linear) -> bool:
    """Whether the layer is a product with its whole weight as it lies, and nothing else but perhaps a bias."""
    if type(layer) is not Linear or layer.rounding is not None or is_hooked(layer):
        return False
    return type(layer.weight) is Parameter and layer.weight.is_contiguous()  # one divided over ranks is of another type
