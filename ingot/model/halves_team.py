"""Which layers, or halves of layers, the loops of a training run take, in float32 on an ARM CPU (halves.py).

    y = x + W_out attend(rotate(W_qkv norm(x)))        y = x + W_down swiglu([W_gate | W_up] norm(x))

They call the loops that the modules would call one by one (norm_team.py, product.py, rope_team.py, attend_square.py,
gated_team.py). The modules are the reference: whoever asks calls them where these functions give None.

Shapes: B rows, T tokens, D width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ingot.model.attention_half import AttentionHalf
from ingot.model.context import Context
from ingot.model.feed_forward.dense import FeedForward, is_swiglu
from ingot.model.feed_forward_half import FeedForwardHalf
from ingot.model.halves import Given
from ingot.model.hooks import is_hooked
from ingot.model.linear import Linear
from ingot.model.mixers import attend_square
from ingot.model.mixers.attention import Attention
from ingot.model.mixers.mixer import Mixer
from ingot.model.norm import RmsNorm
from ingot.model.positions.rope import rotation
from ingot.model.product import product_can
from ingot.model.rooms import rooms_are_kept


def attention_half(mixer: Mixer, norm: RmsNorm | None, x_BTD: Tensor, context: Context) -> Given | None:
    """x + attention(norm(x)) for inputs like x; None if it is not for the loops."""
    if not _attends(mixer, norm, x_BTD, context):
        return None
    assert isinstance(mixer, Attention) and norm is not None
    gain, config, rope = norm.used_gain(), mixer.config, mixer.config.rope
    assert gain is not None and rope is not None
    cos, sin = rotation(context, rope, config.head_width)
    rows, tokens, width = x_BTD.shape
    shape = (rows, 1, tokens, config.head_width // 2)
    turning = context.once(("for every token", id(cos)), lambda: [x.expand(shape).contiguous() for x in (cos, sin)])
    heads = (config.heads, config.key_value_heads, config.head_width)
    interleaved = rope.pairing == "interleaved"
    half = AttentionHalf(rows, tokens, width, *heads, interleaved, mixer.scale, norm.epsilon)
    return half, (gain, mixer.query_key_value.weight, mixer.output.weight, *turning)


def feed_forward_half(feed_forward: nn.Module, norm: RmsNorm | None, x_BTD: Tensor) -> Given | None:
    """x + feed_forward(norm(x)) for inputs like x; None if it is not for the loops."""
    if not _gates(feed_forward, norm, x_BTD):
        return None
    assert isinstance(feed_forward, FeedForward) and norm is not None
    gain, (rows, tokens, width) = norm.used_gain(), x_BTD.shape
    assert gain is not None
    half = FeedForwardHalf(rows * tokens, width, feed_forward.config.width, norm.epsilon)
    return half, (gain, feed_forward.gate_up.weight, feed_forward.down.weight)


def _attends(mixer: Mixer, norm: RmsNorm | None, x_BTD: Tensor, context: Context) -> bool:
    """Whether the loops do what these modules do: plain causal attention over whole rows, with rotations."""
    if not _can(norm, x_BTD) or not isinstance(mixer, Attention) or is_hooked(mixer):
        return False
    config, (rows, tokens, _) = mixer.config, x_BTD.shape
    odd = (config.gate, config.dual_chunk, config.window, config.chunk, config.softcap, config.temperature, mixer.sinks)
    if config.rope is None or config.query_key_norm != "none" or any(each is not None for each in odd):
        return False
    if context.documents_BT is not None or context.across is not None or context.wants_logits:
        return False
    return (
        config.rope.rotated(config.head_width) == config.head_width
        and config.head_width % attend_square.WIDTHS == 0
        and tokens >= attend_square.SHORTEST
        and rows * config.key_value_heads >= torch.get_num_threads()
        and _multiplies(mixer.query_key_value, x_BTD)
        and _multiplies(mixer.output, x_BTD)
    )


def _gates(feed_forward: nn.Module, norm: RmsNorm | None, x_BTD: Tensor) -> bool:
    """Whether the loops do what these modules do: a plain SwiGLU."""
    if not _can(norm, x_BTD) or not isinstance(feed_forward, FeedForward) or is_hooked(feed_forward):
        return False
    if not is_swiglu(feed_forward.config) or feed_forward.config.output_multiplier != 1:
        return False
    return _multiplies(feed_forward.gate_up, x_BTD) and _multiplies(feed_forward.down, x_BTD)


def _can(norm: RmsNorm | None, x_BTD: Tensor) -> bool:
    """Whether a training run wants loops, and this is a norm for them."""
    if torch.compiler.is_compiling() or not rooms_are_kept():
        return False
    plain = norm is not None and norm.gain is not None and norm.gain.dtype == torch.float32 and not is_hooked(norm)
    return plain and torch.is_grad_enabled() and x_BTD.requires_grad


def _multiplies(layer: Linear, x_BTD: Tensor) -> bool:
    """Whether this is a product with the layer's own weight, by the loops."""
    plain = type(layer) is Linear and layer.rounding is None and layer.weight_in_use is None and layer.bias is None
    own = "multiply" in vars(layer)  # as layers in float8 have one
    if not plain or own or is_hooked(layer) or not layer.weight.is_contiguous():
        return False
    outputs, inputs = layer.weight.shape
    return product_can(x_BTD.shape[0] * x_BTD.shape[1], inputs, outputs, x_BTD, layer.weight)
