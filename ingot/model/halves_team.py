"""The two halves of the usual layer, each as one step of autograd, for training in float32 on an ARM CPU.

    y = x + W_out attend(rotate(W_qkv norm(x)))        y = x + W_down swiglu([W_gate | W_up] norm(x))

They call the loops that the modules would call one by one (norm_team.py, product.py, rope_team.py, attend_square.py,
gated_team.py), but in one call of the team: with Python and autograd between them a layer took 4 ms longer, as a product leaves
nothing of Python in the caches. Sums with x are part of the products, or of the gradient of the norm. The modules are the
reference: block.py calls them where these functions give None.

Shapes: B rows, T tokens, D width, F features of a projection, H query heads, K key heads, W their width, R turned pairs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ingot.model import product, team
from ingot.model.context import Context
from ingot.model.feed_forward.dense import FeedForward, is_swiglu
from ingot.model.feed_forward.gated_team import gate_backward, gate_forward
from ingot.model.linear import Linear
from ingot.model.mixers import attend_square
from ingot.model.mixers.attention import Attention
from ingot.model.mixers.mixer import Mixer
from ingot.model.norm import RmsNorm
from ingot.model.norm_team import norm_backward, norm_forward
from ingot.model.positions.rope import rotation
from ingot.model.positions.rope_team import turn_heads
from ingot.model.product import run_product
from ingot.model.rooms import new_room, rooms_are_kept


def attention_half(mixer: Mixer, norm: RmsNorm | None, x_BTD: Tensor, context: Context) -> Tensor | None:
    """x + attention(norm(x)); None if it is not for the loops."""
    if not _attends(mixer, norm, x_BTD, context):
        return None
    assert isinstance(mixer, Attention) and norm is not None
    config, rope = mixer.config, mixer.config.rope
    assert rope is not None
    shape = (len(x_BTD), 1, x_BTD.shape[1], config.head_width // 2)
    turning = [each.expand(shape).contiguous() for each in rotation(context, rope, config.head_width)]
    weights = (norm.used_gain(), mixer.query_key_value.weight, mixer.output.weight)
    heads = (config.heads, config.key_value_heads, config.head_width)
    interleaved = rope.pairing == "interleaved"
    y: Tensor = _Attention.apply(x_BTD, *weights, *turning, norm.epsilon, heads, interleaved, mixer.scale)  # type: ignore[no-untyped-call]
    return y


def feed_forward_half(feed_forward: nn.Module, norm: RmsNorm | None, x_BTD: Tensor) -> Tensor | None:
    """x + feed_forward(norm(x)); None if it is not for the loops."""
    if not _gates(feed_forward, norm, x_BTD):
        return None
    assert isinstance(feed_forward, FeedForward) and norm is not None
    weights = (norm.used_gain(), feed_forward.gate_up.weight, feed_forward.down.weight)
    y: Tensor = _FeedForward.apply(x_BTD, *weights, norm.epsilon)  # type: ignore[no-untyped-call]
    return y


def _attends(mixer: Mixer, norm: RmsNorm | None, x_BTD: Tensor, context: Context) -> bool:
    """Whether the loops do what these modules do: plain causal attention over whole rows, with rotations."""
    if not _can(norm, x_BTD) or not isinstance(mixer, Attention) or _hooked(mixer):
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
    if not _can(norm, x_BTD) or not isinstance(feed_forward, FeedForward) or _hooked(feed_forward):
        return False
    if not is_swiglu(feed_forward.config) or feed_forward.config.output_multiplier != 1:
        return False
    return _multiplies(feed_forward.gate_up, x_BTD) and _multiplies(feed_forward.down, x_BTD)


def _can(norm: RmsNorm | None, x_BTD: Tensor) -> bool:
    """Whether a training run wants loops, and this is a norm for them."""
    if torch.compiler.is_compiling() or not rooms_are_kept():
        return False
    plain = norm is not None and norm.gain is not None and norm.gain.dtype == torch.float32 and not _hooked(norm)
    return plain and torch.is_grad_enabled() and x_BTD.requires_grad


def _multiplies(layer: Linear, x_BTD: Tensor) -> bool:
    """Whether this is a product with the layer's own weight, by the loops."""
    plain = type(layer) is Linear and layer.rounding is None and layer.weight_in_use is None and layer.bias is None
    own = "multiply" in vars(layer)  # as layers in float8 have one
    if not plain or own or _hooked(layer) or not layer.weight.is_contiguous():
        return False
    outputs, inputs = layer.weight.shape
    return product.product_can(x_BTD.shape[0] * x_BTD.shape[1], inputs, outputs, x_BTD, layer.weight)


def _hooked(module: nn.Module) -> bool:
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks)


def _project(x_BTD: Tensor, weight_FD: Tensor, out_BTF: Tensor | None = None) -> Tensor:
    """x Wᵀ, or out plus that."""
    (rows, tokens, width), features = x_BTD.shape, len(weight_FD)
    out = new_room(rows, tokens, features) if out_BTF is None else out_BTF
    shape = (rows * tokens, width, features)
    return run_product((x_BTD, width, 1), (weight_FD, width, 1), out, shape, adds=out_BTF is not None)


def _gradients(up_BTF: Tensor, x_BTD: Tensor, weight_FD: Tensor, learns: bool) -> tuple[Tensor, Tensor | None]:
    """The gradients of x and, if it `learns`, of W from that of x Wᵀ."""
    (rows, tokens, width), features = x_BTD.shape, len(weight_FD)
    count, d_x = rows * tokens, new_room(rows, tokens, width)
    run_product((up_BTF, features, 1), (weight_FD, 1, width), d_x, (count, features, width))
    if not learns:
        return d_x, None
    d_weight = new_room(features, width)
    run_product((up_BTF, 1, features), (x_BTD, 1, width), d_weight, (features, count, width))
    return d_x, d_weight


class _FeedForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, gate_up: Tensor, down: Tensor, epsilon: float) -> Tensor:
        x = x.contiguous()
        out = new_room(*x.shape).copy_(x)
        with team.together():
            normed = norm_forward(x, gain, epsilon)
            projected = _project(normed, gate_up)
            inner = gate_forward(projected)
            _project(inner, down, out)
        ctx.save_for_backward(x, gain, gate_up, down, normed, projected, inner)
        ctx.epsilon = epsilon
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, up: Tensor) -> tuple[Tensor | None, ...]:
        x, gain, gate_up, down, normed, projected, inner = ctx.saved_tensors
        up, (_, _, first, second, _) = up.contiguous(), ctx.needs_input_grad
        with team.together():
            d_inner, d_down = _gradients(up, inner, down, second)
            d_projected = gate_backward(projected, d_inner)
            d_normed, d_gate_up = _gradients(d_projected, normed, gate_up, first)
            d_x, d_gain = norm_backward(x, gain, ctx.epsilon, d_normed, up)
        return d_x, d_gain, d_gate_up, d_down, None


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        gain: Tensor,
        query_key_value: Tensor,
        output: Tensor,
        cos: Tensor,
        sin: Tensor,
        epsilon: float,
        heads: tuple[int, int, int],
        interleaved: bool,
        scale: float,
    ) -> Tensor:
        x = x.contiguous()
        (rows, tokens, _), (query_heads, key_heads, width) = x.shape, heads
        out, turned = new_room(*x.shape).copy_(x), new_room(rows, tokens, (query_heads + key_heads) * width)
        mixed, lse = new_room(rows, tokens, query_heads * width), new_room(rows, query_heads, tokens)
        shape = (rows, query_heads, key_heads, tokens, width)
        with team.together():
            normed = norm_forward(x, gain, epsilon)
            projected = _project(normed, query_key_value)
            turn_heads(projected, query_heads + key_heads, cos, sin, turned, interleaved=interleaved, back=False)
            numbers = [*_given(turned, projected, heads), *_place(mixed, width) * 5]
            attend_square.run_square(attend_square.loops().forward, numbers, lse, shape, scale)
            _project(mixed, output, out)
        ctx.save_for_backward(x, gain, query_key_value, output, cos, sin, normed, projected, turned, mixed, lse)
        ctx.settings = epsilon, heads, interleaved, scale
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, up: Tensor) -> tuple[Tensor | None, ...]:
        x, gain, query_key_value, output, cos, sin, normed, projected, turned, mixed, lse = ctx.saved_tensors
        (epsilon, heads, interleaved, scale), up = ctx.settings, up.contiguous()
        (rows, tokens, _), (query_heads, key_heads, width) = x.shape, heads
        shape = (rows, query_heads, key_heads, tokens, width)
        d_turned, d_projected = new_room(*turned.shape), new_room(*projected.shape)
        with team.together():
            d_mixed, d_output = _gradients(up, mixed, output, ctx.needs_input_grad[3])
            numbers = [*_given(turned, projected, heads), *_place(mixed, width), *_place(d_mixed, width)]
            numbers += _given(d_turned, d_projected, heads)
            attend_square.run_square(attend_square.loops().backward, numbers, lse, shape, scale)
            turn_heads(d_turned, query_heads + key_heads, cos, sin, d_projected, interleaved=interleaved, back=True)
            learns = ctx.needs_input_grad[2]
            d_normed, d_query_key_value = _gradients(d_projected, normed, query_key_value, learns)
            d_x, d_gain = norm_backward(x, gain, epsilon, d_normed, up)
        return d_x, d_gain, d_query_key_value, d_output, *[None] * 6


def _given(turned: Tensor, projected: Tensor, heads: tuple[int, int, int]) -> tuple[int, ...]:
    """Where queries and keys, turned, and values lie."""
    query_heads, key_heads, width = heads
    return (
        *_place(turned, width),
        *_place(turned, width, query_heads),
        *_place(projected, width, query_heads + key_heads),
    )


def _place(heads_BTF: Tensor, width: int, first: int = 0) -> tuple[int, int, int, int]:
    """The address of a head, and the strides of row, head and token."""
    _, tokens, features = heads_BTF.shape
    return heads_BTF.data_ptr() + 4 * first * width, tokens * features, width, features
