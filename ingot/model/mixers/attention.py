"""Softmax attention with all that real systems add to it. What a layer has, its config says (mixers/config.py).

    q, k, v = [W_q | W_k | W_v] x + b            H query heads, K key and value heads; each serves H/K query heads
    q, k    = norm(q), norm(k)                   per head, or over all heads at once; then rotated; or rotated, then normed
    q       = q · (1 + a·ln(1 + ⌊(p+1)/F⌋))      query temperature at place p of the document
    o_i     = Σ_j softmax_j(cap(scale·q_i·k_j)) v_j  over the keys that the mask shows (attend.py), sinks in the softmax
    y       = W_o (gate ⊙ o) + b                 gate = σ(W_g x), per channel or per head; it may sit on the values instead

K = H is multi-head (Vaswani et al., arXiv 1706.03762), K = 1 multi-query, anything between grouped-query attention (Ainslie
et al., arXiv 2305.13245). Gates: Qiu et al., arXiv 2505.06708. Temperature: Nakanishi, arXiv 2501.19399.

Shapes: B rows, T tokens, D stream width, H, K heads, W head width, S places of the cache.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import sigmoid, silu

from ingot.model.context import Context
from ingot.model.linear import Linear
from ingot.model.matrices import in_order
from ingot.model.mixers.attend import attend
from ingot.model.mixers.attend_paged import attend_paged
from ingot.model.mixers.cache import Cache, Room, TokenCache
from ingot.model.mixers.config import AttentionConfig, TemperatureConfig
from ingot.model.mixers.dual_chunk import dual_chunk_attention, turn_keys
from ingot.model.mixers.mixer import Mixer, Site
from ingot.model.mixers.store import store, store_can
from ingot.model.norm import RmsNorm
from ingot.model.order import local
from ingot.model.positions.config import LongRopeScaling
from ingot.model.positions.place import place, place_can
from ingot.model.positions.rope import rotate, rotation


class Attention(Mixer):
    """One attention layer. The three input projections are one matrix: [queries | keys | values]."""

    def __init__(self, config: AttentionConfig, site: Site) -> None:
        super().__init__()
        self.config, self.layer = config, site.layer
        heads, key_heads, width = config.heads, config.key_value_heads, config.head_width
        self.query_key_value = Linear(site.width, (heads + 2 * key_heads) * width, bias=config.query_key_value_bias)
        self.matrices = {"query_key_value.weight": in_order((heads, width), (key_heads, width), (key_heads, width))}
        self.output = Linear(heads * width, site.width, bias=config.output_bias)
        if config.query_key_norm == "full":
            self.query_norm = RmsNorm(heads * width, site.norm)
            self.key_norm = RmsNorm(key_heads * width, site.norm)
        elif config.query_key_norm != "none":
            gain = config.query_key_norm == "head"
            self.query_norm = RmsNorm(width, site.norm, gain=gain)
            self.key_norm = RmsNorm(width, site.norm, gain=gain)
        if config.gate is not None:
            gated = heads if config.gate.place == "output" else key_heads
            self.gate = Linear(site.width, gated * (width if config.gate.form == "elementwise" else 1), bias=False)
        self.whole_rows, self.capturable = config.dual_chunk is not None, config.dual_chunk is None
        # LongRoPE looks at how long a row is
        self.rows_split = config.dual_chunk is None and (
            config.rope is None or not isinstance(config.rope.scaling, LongRopeScaling)
        )
        self.sinks = nn.Parameter(torch.zeros(heads)) if config.sinks else None
        # the constant factor on the keys is a factor on every score
        self.scale = (width**-0.5 if config.scale is None else config.scale) * config.key_multiplier

    def forward(self, x_BTD: Tensor, context: Context, cache: Cache | None = None) -> Tensor:
        config = self.config
        assert cache is None or isinstance(cache, TokenCache)
        if cache is not None and store_can(self, x_BTD, cache):
            mixed_BHTW = self.attend_stored(self.query_key_value(x_BTD), context, cache)
        else:
            query, key, value = self._heads(self.query_key_value(x_BTD), context)
            if config.gate is not None and config.gate.place == "value":
                value = value * self._gate(x_BTD)
            mixed_BHTW = self._mix(self._cooled(query, context), key, value, context, cache)
        if config.gate is not None and config.gate.place == "output":
            mixed_BHTW = mixed_BHTW * self._gate(x_BTD)
        return self.output(mixed_BHTW.transpose(1, 2).flatten(2))

    def attend_stored(self, projected_BTF: Tensor, context: Context, cache: TokenCache) -> Tensor:
        """The heads' outputs [B, H, T, W] from the projection of new tokens; their keys and values go to the cache."""
        query = self._cooled(self._store(projected_BTF, context, cache), context)
        return attend_paged(query, cache, context, **self._rules())

    def prepare(self, context: Context) -> None:
        if self.config.rope is not None and self.config.dual_chunk is None:
            rotation(context, self.config.rope, self.config.head_width)
        if self.config.temperature is not None:
            _temperature(context, self.config.temperature)

    def make_cache(self, room: Room, dtype: torch.dtype, device: torch.device) -> TokenCache:
        stream = (self.config.key_value_heads, self.config.head_width)
        limits = [limit for limit in (self.config.window, self.config.chunk) if limit is not None]
        return TokenCache({"keys": stream, "values": stream}, room, dtype, device, min(limits, default=None))

    def _heads(self, projected_BTF: Tensor, context: Context) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [B, H, T, W], keys and values [B, K, T, W], normed and at their positions."""
        rope, dual_chunk = self.config.rope, self.config.dual_chunk
        if rope is not None and place_can(self.config, projected_BTF):
            return place(
                projected_BTF,
                rotation(context, rope, self.config.head_width),
                self._gains(),
                rope,
                heads=self.config.heads,
                key_heads=self.config.key_value_heads,
                epsilon=self._epsilon(),
            )
        query, key, value = self._project(projected_BTF)
        if dual_chunk is None:
            query, key = self._place(query, key, context)
        else:
            assert rope is not None
            key = turn_keys(key, context, rope, dual_chunk)  # the queries turn later, three times
        return query, key, value

    def _project(self, projected_BTF: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The projection cut into heads, with the norms that come before the rotation."""
        config = self.config
        heads, key_heads, width = config.heads, config.key_value_heads, config.head_width
        sizes = (heads * width, key_heads * width, key_heads * width)
        query, key, value = projected_BTF.split(sizes, dim=-1)
        if config.query_key_norm == "full":
            query, key = self.query_norm(query), self.key_norm(key)
        query, key, value = (part.unflatten(-1, (-1, width)).transpose(1, 2) for part in (query, key, value))
        if config.query_key_norm == "head":
            query, key = self.query_norm(query), self.key_norm(key)
        return query, key, value

    def _place(self, query: Tensor, key: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        """Queries and keys rotated to their positions; a layer without positions leaves them as they are."""
        rope = self.config.rope
        if rope is None:
            return query, key
        cos, sin = rotation(context, rope, self.config.head_width)
        query, key = rotate(query, cos, sin, rope.pairing), rotate(key, cos, sin, rope.pairing)
        if self.config.query_key_norm == "after_rope":
            query, key = self.query_norm(query), self.key_norm(key)
        return query, key

    def _mix(self, query: Tensor, key: Tensor, value: Tensor, context: Context, cache: Cache | None) -> Tensor:
        """The heads' outputs [B, H, T, W]. With a cache, new keys and values are stored first, then all are seen."""
        config = self.config
        key, value = context.keys(key, 2), context.keys(value, 2)
        if cache is not None:
            assert isinstance(cache, TokenCache)
            cache.write(context, keys=key, values=value)
            if config.dual_chunk is None:
                return attend_paged(query, cache, context, **self._rules())
            key, value = (cache.read(name, context) for name in ("keys", "values"))
        if config.dual_chunk is not None:
            assert config.rope is not None
            return dual_chunk_attention(query, key, value, context, config.rope, config.dual_chunk, scale=self.scale)
        return attend(query, key, value, context, layer=self.layer if context.wants_logits else None, **self._rules())

    def _rules(self) -> dict[str, Any]:
        """What the attention itself is told."""
        return {
            "scale": self.scale,
            "window": self.config.window,
            "chunk": self.config.chunk,
            "softcap": self.config.softcap,
            "sinks_H": None if self.sinks is None else local(self.sinks),
        }

    def _cooled(self, query: Tensor, context: Context) -> Tensor:
        """The queries times their temperature."""
        if self.config.temperature is None:
            return query
        return (query * _temperature(context, self.config.temperature)).to(query.dtype)

    def _store(self, projected_BTF: Tensor, context: Context, cache: TokenCache) -> Tensor:
        """Queries [B, H, T, W]; keys and values go to the cache: `_project`, `_place` and `cache.write` in one kernel."""
        config, gains = self.config, self._gains()
        page_BT, offset_BT = cache.places(context)
        query_NHW = store(
            projected_BTF.flatten(0, 1),
            cache.streams["keys"],
            cache.streams["values"],
            page_BT,
            offset_BT,
            None if config.rope is None else rotation(context, config.rope, config.head_width),
            gains,
            heads=config.heads,
            epsilon=self._epsilon(),
            interleaved=config.rope is not None and config.rope.pairing == "interleaved",
            gain_after_cast=gains is None or self.query_norm.config.cast == "before_gain",
        )
        return query_NHW.unflatten(0, projected_BTF.shape[:2]).transpose(1, 2)

    def _gains(self) -> tuple[Tensor, Tensor] | None:
        """Those of the norms per head that come before the rotation, for the queries and for the keys."""
        if self.config.query_key_norm != "head":
            return None
        query_gain, key_gain = self.query_norm.used_gain(), self.key_norm.used_gain()
        assert query_gain is not None and key_gain is not None
        return query_gain, key_gain

    def _epsilon(self) -> float:
        return self.query_norm.epsilon if self.config.query_key_norm == "head" else 0.0

    def _gate(self, x_BTD: Tensor) -> Tensor:
        """[B, heads, T, W], or [B, heads, T, 1] with one gate per head."""
        assert self.config.gate is not None
        width = self.config.head_width if self.config.gate.form == "elementwise" else 1
        gate = self.gate(x_BTD).unflatten(-1, (-1, width)).transpose(1, 2)
        return sigmoid(gate) if self.config.gate.activation == "sigmoid" else silu(gate)


def _temperature(context: Context, config: TemperatureConfig) -> Tensor:
    """The factor on the queries [B, 1, T, 1]: positions are the document's own."""

    def compute() -> Tensor:
        steps = ((context.positions_BT.float() + 1) / config.floor).floor()
        return (1 + config.slope * steps.log1p())[:, None, :, None]

    return context.once(("temperature", config), compute)
