"""Softmax attention with all that real systems add to it. What a layer has, its config says (mixers/config.py).

    q, k, v = [W_q | W_k | W_v] x + b            H query heads, K key and value heads; each serves H/K query heads
    q, k    = norm(q), norm(k)                   per head, or over all heads at once; then rotated; or rotated, then normed
    q       = q · (1 + a·ln(1 + ⌊(p+1)/F⌋))      query temperature at position p of the document
    o_i     = Σ_j softmax_j(cap(scale·q_i·k_j)) v_j  over the keys that the mask shows (attend.py), sinks in the softmax
    y       = W_o (gate ⊙ o) + b                 gate = σ(W_g x), per channel or per head; it may be on the values instead

K = H is multi-head (Vaswani et al., arXiv 1706.03762), K = 1 multi-query, anything between grouped-query attention (Ainslie
et al., arXiv 2305.13245). Gates: Qiu et al., arXiv 2505.06708. Temperature: Nakanishi, arXiv 2501.19399.

Shapes: B rows, T tokens, D stream width, H, K heads, W head width, F = (H + 2K)·W.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import sigmoid, silu

from ingot.kernels.attend_paged import attend_paged
from ingot.kernels.attention_options import AttentionOptions
from ingot.kernels.qk_norm_rope import config_allowed, qk_norm_rope
from ingot.kernels.write_kv import config_writes_projection, write_kv
from ingot.model.context import Context
from ingot.model.linear import Linear
from ingot.model.matrices import in_order
from ingot.model.mixers.attend import attend
from ingot.model.mixers.cache import Cache, Room, TokenCache
from ingot.model.mixers.config import AttentionConfig, TemperatureConfig
from ingot.model.mixers.dual_chunk import dual_chunk_attention, rotate_keys
from ingot.model.mixers.mixer import Mixer, Site
from ingot.model.norm import RmsNorm
from ingot.model.order import local
from ingot.model.positions.config import LongRopeScaling
from ingot.model.positions.rope import rotation


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
        self.qk_kernel = config_allowed(config, site.norm)
        self.writes_projection = config_writes_projection(config, site.norm)

    def forward(self, x_BTD: Tensor, context: Context, cache: Cache | None = None) -> Tensor:
        gate = self.config.gate
        projected_BTF = self._projection(x_BTD)
        if cache is not None and self.writes_projection:
            mixed_BHTW = self._attend_written(projected_BTF, context, cache)
        else:
            query, key, value = self._heads(projected_BTF, context)
            if gate is not None and gate.place == "value":
                value = value * self._gate(x_BTD)
            mixed_BHTW = self._mix(self._with_temperature(query, context), key, value, context, cache)
        if gate is not None and gate.place == "output":
            mixed_BHTW = mixed_BHTW * self._gate(x_BTD)
        return self.output(mixed_BHTW.transpose(1, 2).flatten(2))

    def prepare(self, context: Context) -> None:
        if self.config.dual_chunk is None:
            self._cos_sin(context)
        if self.config.temperature is not None:
            _temperature(context, self.config.temperature)

    def make_cache(self, room: Room, dtype: torch.dtype, device: torch.device) -> TokenCache:
        stream = (self.config.key_value_heads, self.config.head_width)
        limits = [limit for limit in (self.config.window, self.config.chunk) if limit is not None]
        return TokenCache({"keys": stream, "values": stream}, room, dtype, device, min(limits, default=None))

    def options(self) -> AttentionOptions:
        """What backends and kernels are told."""
        config = self.config
        sinks = None if self.sinks is None else local(self.sinks)
        return AttentionOptions(self.scale, config.window, config.chunk, config.softcap, sinks)

    def _projection(self, x_BTD: Tensor) -> Tensor:
        """[queries | keys | values], with the norm over all heads at once if the layer has that one."""
        projected_BTF: Tensor = self.query_key_value(x_BTD)
        if self.config.query_key_norm != "full":
            return projected_BTF
        heads, key_heads, width = self.config.heads, self.config.key_value_heads, self.config.head_width
        query, key, value = projected_BTF.split([count * width for count in (heads, key_heads, key_heads)], dim=-1)
        return torch.cat((self.query_norm(query), self.key_norm(key), value), dim=-1)

    def _heads(self, projected_BTF: Tensor, context: Context) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [B, H, T, W], keys and values [B, K, T, W], normed and rotated; with dual chunks only the keys are rotated."""
        config = self.config
        query, key, value = qk_norm_rope(
            projected_BTF,
            None if config.dual_chunk is not None else self._cos_sin(context),
            key_heads=config.key_value_heads,
            kernel=self.qk_kernel,
            **self._head_options(),
        )
        if config.query_key_norm == "after_rope":
            query, key = self.query_norm(query), self.key_norm(key)
        if config.dual_chunk is not None:
            assert config.rope is not None
            key = rotate_keys(key, context, config.rope, config.dual_chunk)
        return query, key, value

    def _mix(self, query: Tensor, key: Tensor, value: Tensor, context: Context, cache: Cache | None) -> Tensor:
        """The heads' outputs [B, H, T, W]. With a cache, new keys and values are written first, then all are seen."""
        config = self.config
        key, value = context.keys(key, 2), context.keys(value, 2)
        if cache is not None:
            assert isinstance(cache, TokenCache)
            cache.write(context, keys=key, values=value)
            if config.dual_chunk is None:
                return self._attend_pages(query, cache, context)
            key, value = (cache.read(name, context) for name in ("keys", "values"))
        if config.dual_chunk is not None:
            assert config.rope is not None
            return dual_chunk_attention(query, key, value, context, config.rope, config.dual_chunk, scale=self.scale)
        return attend(query, key, value, context, self.options(), layer=self.layer if context.wants_logits else None)

    def _attend_written(self, projected_BTF: Tensor, context: Context, cache: Cache) -> Tensor:
        """The heads' outputs [B, H, T, W]; keys and values go from the projection to the cache in one operation."""
        assert isinstance(cache, TokenCache)
        query = write_kv(
            projected_BTF,
            cache.streams["keys"],
            cache.streams["values"],
            *cache.pages_and_offsets(context),
            self._cos_sin(context),
            **self._head_options(),
        )
        return self._attend_pages(self._with_temperature(query, context), cache, context)

    def _attend_pages(self, query: Tensor, cache: TokenCache, context: Context) -> Tensor:
        keys, values, table = cache.streams["keys"], cache.streams["values"], cache.table(context)
        assert context.reach is not None
        return attend_paged(query, keys, values, table, context.positions_BT, self.options(), context.reach)

    def _head_options(self) -> dict[str, Any]:
        """What `qk_norm_rope` and `write_kv` are told in common."""
        config, gains, epsilon, round_first = self.config, None, 0.0, True
        if config.query_key_norm == "head":
            gains = (self.query_norm.used_gain(), self.key_norm.used_gain())
            epsilon, round_first = self.query_norm.epsilon, self.query_norm.round_first
        pairing = "halves" if config.rope is None else config.rope.pairing
        return {
            "gains": gains,
            "heads": config.heads,
            "pairing": pairing,
            "epsilon": epsilon,
            "round_first": round_first,
        }

    def _cos_sin(self, context: Context) -> tuple[Tensor, Tensor] | None:
        """cos and sin of the pass; None in a layer without positions."""
        rope = self.config.rope
        return None if rope is None else rotation(context, rope, self.config.head_width)

    def _with_temperature(self, query: Tensor, context: Context) -> Tensor:
        """The queries times their temperature."""
        if self.config.temperature is None:
            return query
        return (query * _temperature(context, self.config.temperature)).to(query.dtype)

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
