"""All layers of a pass over a few tokens in one call: the usual pre-norm stack in float32 on an ARM CPU.

    x, h = x + y, norm(x + y)     p = h W_qkvᵀ      q, cache = store(p)     o = attend(q, cache)      y = o W_outᵀ
    x, h = x + y, norm(x + y)     p = h W_gate_upᵀ  u = silu(gate) ⊙ up     y = u W_downᵀ             …

Each of these is a stage of a plan (team.py), divided over torch's threads. It is what the modules compute, by the same loops
(norm_numba.py, store_numba.py, attend_paged_numba.py, gated_numba.py, multiply.py); but with a call of each from Python a step of
a model of 135M parameters takes 62 ms instead of 46 for eight rows, and 35 instead of 25 for one. The plan is made anew for every
pass, from the modules as they are then.

Shapes: B rows, T tokens, N = B·T, D width.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from types import ModuleType

import torch
from torch import Tensor
from torch.nn import Module

from ingot.inference.few_rows.multiply import can_multiply, program
from ingot.inference.few_rows.task import PANEL, panels_for
from ingot.inference.few_rows.team import Stage, run
from ingot.inference.products import multiply_few
from ingot.inference.usual_layer import is_plain, products_of
from ingot.model.block import Block
from ingot.model.context import Context
from ingot.model.feed_forward.dense import FeedForward
from ingot.model.linear import Linear
from ingot.model.mixers.attend_paged_numba import MOST_TOKENS
from ingot.model.mixers.attention import Attention
from ingot.model.mixers.cache import Cache, TokenCache
from ingot.model.norm import RmsNorm
from ingot.model.positions.rope import rotation
from ingot.model.team import bits

MOST_ROWS = 32  # tokens of a pass: libraries multiply more of them faster


def stack_can(blocks: Iterable[Module], caches: Sequence[Cache | None], x_BTD: Tensor) -> bool:
    """Whether `stack_states` computes what these blocks do; their norms are such that `add_norm_can`."""
    rows, tokens, width = x_BTD.shape
    if not (0 < rows * tokens <= MOST_ROWS and tokens <= MOST_TOKENS and can_multiply(x_BTD, width, width)):
        return False
    return all(_block_can(block, cache, x_BTD) for block, cache in zip(blocks, caches, strict=True))


def _block_can(block: Module, cache: Cache | None, x_BTD: Tensor) -> bool:
    assert isinstance(block, Block)
    layers = products_of(block, x_BTD, cache)
    if layers is None or not isinstance(block.mixer, Attention) or block.mixer.config.temperature is not None:
        return False
    return all(map(_can, layers))


def _can(layer: Linear) -> bool:
    """Whether the loops multiply with this layer."""
    bias: Tensor | None = layer._parameters.get("bias")  # packed layers have none of that name
    if not is_plain(layer) or layer.multiply is not multiply_few or bias is not None:
        return False
    return can_multiply(layer.weight, layer.in_features, layer.out_features)


def stack_states(
    blocks: Iterable[Module], caches: Sequence[Cache | None], x_BTD: Tensor, context: Context, norm: RmsNorm
) -> Tensor:
    """The states [B, T, D] after all blocks and the norm that follows them."""
    plan = Plan(x_BTD, context)
    for block, own in zip(blocks, caches, strict=True):
        assert isinstance(block, Block) and isinstance(own, TokenCache)
        assert isinstance(block.mixer, Attention) and isinstance(block.feed_forward, FeedForward)
        plan.add_norm(block.mixer_norm)
        plan.attention(block.mixer, own)
        plan.add_norm(block.feed_forward_norm)
        plan.feed_forward(block.feed_forward)
    plan.add_norm(norm)
    run(plan.stages)
    return plan.normed.view_as(x_BTD)


class Plan:
    """The stages of a pass. x is the residual stream, y what the last part adds to it, `normed` what the next one reads."""

    def __init__(self, x_BTD: Tensor, context: Context) -> None:
        self.context, self.tokens, self.width = context, x_BTD.shape[0] * x_BTD.shape[1], x_BTD.shape[2]
        self.stages: list[Stage] = []
        self.loops = _loops()
        self._rooms: dict[tuple[str, int], Tensor] = {}
        self._kept: list[Tensor] = []  # until all stages have run
        self.x, self.y = self._address(x_BTD.clone(memory_format=torch.contiguous_format)), 0
        self.normed = self._room("normed", self.tokens * self.width)

    def add_norm(self, norm: RmsNorm | None) -> None:
        """x <- x + y, and its norm."""
        assert norm is not None
        gain = norm.used_gain()
        assert gain is not None
        numbers = self.x, self.y, self._address(gain), self.x, self.normed.data_ptr(), self.tokens, self.width
        self.stages.append((self.loops.add_norm.address, (*numbers, bits(norm.epsilon))))

    def attention(self, layer: Attention, cache: TokenCache) -> None:
        """y <- attention of the tokens to themselves and their past; their keys and values go to the cache."""
        projected = self.product(self.normed.data_ptr(), layer.query_key_value, "projected")
        size = self.tokens * layer.config.heads * layer.config.head_width
        query, mixed = self._room("query", size).data_ptr(), self._room("mixed", size).data_ptr()
        self._store(layer, cache, projected, query)
        self._attend(layer, cache, query, mixed)
        self.y = self.product(mixed, layer.output, "output")

    def _store(self, layer: Attention, cache: TokenCache, projected: int, query: int) -> None:
        config, keys, values = layer.config, cache.streams["keys"], cache.streams["values"]
        pages, key_heads, page, width = keys.shape
        places = [self._address(place) for place in cache.places(self.context)]
        turning, pairs, gains, epsilon = (0, 0), 0, (0, 0), 0.0
        if config.rope is not None:
            cos, sin = rotation(self.context, config.rope, width)
            turning, pairs = (self._address(cos), self._address(sin)), cos.shape[-1]
        if config.query_key_norm == "head":
            query_gain, key_gain = layer.query_norm.used_gain(), layer.key_norm.used_gain()
            assert query_gain is not None and key_gain is not None
            gains, epsilon = (self._address(query_gain), self._address(key_gain)), layer.query_norm.epsilon
        interleaved = config.rope is not None and config.rope.pairing == "interleaved"
        addresses = (query, keys.data_ptr(), values.data_ptr(), projected, *places, *turning, *gains)
        shape = (self.tokens, config.heads, key_heads, pages, page, width, pairs)
        self.stages.append((self.loops.store.address, (*addresses, *shape, bits(epsilon), interleaved)))

    def _attend(self, layer: Attention, cache: TokenCache, query: int, mixed: int) -> None:
        config, keys, values = layer.config, cache.streams["keys"], cache.streams["values"]
        pages, key_heads, page, width = keys.shape
        rows, tokens = self.context.positions_BT.shape
        positions, table_BR = self._address(self.context.positions_BT.long()), cache.table(self.context).int()
        window, chunk, threads = config.window or 0, config.chunk or 0, torch.get_num_threads()
        span = self.context.once(
            ("span", window, chunk), lambda: _attention().longest_span(positions, rows, tokens, window, chunk)
        )
        together = key_heads if rows >= threads else 1
        size = _attention().room_for(tokens * config.heads // key_heads * together, width, width, span)
        sinks = 0 if layer.sinks is None else self._address(layer.sinks)
        addresses = (query, keys.data_ptr(), values.data_ptr(), self._address(table_BR), positions, sinks, mixed)
        shape = (rows, tokens, config.heads, key_heads, pages, page, table_BR.shape[1], width, width)
        own = (together, self._room("attention", size * threads).data_ptr(), span, window, chunk, size)
        factors = (bits(layer.scale), bits(config.softcap or 0.0))
        self.stages.append((self.loops.attend.address, (*addresses, *shape, *own, *factors)))

    def feed_forward(self, layer: FeedForward) -> None:
        """y <- the gated feed-forward."""
        projected = self.product(self.normed.data_ptr(), layer.gate_up, "projected")
        inner = self._room("inner", self.tokens * layer.config.width).data_ptr()
        self.stages.append((self.loops.gate.address, (projected, inner, self.tokens, layer.config.width)))
        self.y = self.product(inner, layer.down, "output")

    def product(self, x: int, layer: Linear, name: str) -> int:
        """x Wᵀ, in a room of that name."""
        inputs, outputs = layer.in_features, layer.out_features
        out = self._room(name, self.tokens * outputs).data_ptr()
        panels = self._room("panels", panels_for(self.tokens) * PANEL * inputs).data_ptr()
        numbers = (x, layer.weight.data_ptr(), 0, 0, out, panels, self.tokens, inputs, outputs, 0)
        self.stages.append((program("float32")[1], numbers))
        return out

    def _room(self, name: str, size: int) -> Tensor:
        """Memory of that name; the next layer has the same, if it needs as much."""
        key = (name, size)
        if key not in self._rooms:
            self._rooms[key] = torch.empty(size, dtype=torch.float32, device="cpu")
        return self._rooms[key]

    def _address(self, tensor: Tensor) -> int:
        """Where the tensor lies, contiguous, until all stages have run."""
        tensor = tensor.contiguous()
        self._kept.append(tensor)
        return tensor.data_ptr()


@cache
def _loops() -> ModuleType:
    from ingot.inference.few_rows import stage_loops

    return stage_loops


@cache
def _attention() -> ModuleType:
    from ingot.model.mixers import attend_paged_loops

    return attend_paged_loops
