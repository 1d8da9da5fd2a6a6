"""Softmax attention with all that real systems add to it. What a layer has, its config says.

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

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import sigmoid, silu

from ingot.model.context import Context
from ingot.model.linear import Linear
from ingot.model.matrices import Rows, in_order
from ingot.model.mixers.attend import attend
from ingot.model.mixers.attend_paged import attend_paged
from ingot.model.mixers.cache import Cache, Room, TokenCache
from ingot.model.mixers.dual_chunk import DualChunkConfig, dual_chunk_attention, turn_keys
from ingot.model.mixers.mask import mean_keys
from ingot.model.mixers.mixer import MixerConfig, Site, SoftmaxMixer
from ingot.model.mixers.store import store, store_can
from ingot.model.norm import RmsNorm
from ingot.model.order import local
from ingot.model.positions.config import LongRopeScaling, RopeConfig
from ingot.model.positions.place import place, place_can
from ingot.model.positions.rope import rotate, rotation
from ingot.workspace.config import Config

NORM_WORDS = {
    "head": "QK-norm per head",
    "full": "QK-norm over all heads",
    "after_rope": "QK-norm without gain after RoPE",
}


class TemperatureConfig(Config):
    """Query temperature by position, q · (1 + slope·ln(1 + ⌊(p + 1)/floor⌋)): Llama 4's layers without positions."""

    slope: float = Field(0.1, gt=0, description="a in 1 + a·ln(1 + ⌊(p + 1)/floor⌋)")
    floor: int = Field(8192, gt=0, description="positions per step of the temperature")


class GateConfig(Config):
    """Gated attention (arXiv 2505.06708): a gate computed from the layer's input multiplies inside the layer."""

    place: Literal["output", "value"] = Field(
        "output", description="on the heads' outputs before the output projection, or on the values"
    )
    form: Literal["elementwise", "headwise"] = Field("elementwise", description="a gate per channel or per head")
    activation: Literal["sigmoid", "silu"] = Field("sigmoid", description="what the gate's projection passes through")


class AttentionConfig(MixerConfig):
    """Causal softmax attention with grouped keys and values (Ainslie et al., arXiv 2305.13245)."""

    kind: Literal["attention"] = Field("attention", description="which mixer this is")
    heads: int = Field(gt=0, description="query heads")
    key_value_heads: int = Field(
        gt=0, description="key and value heads; each serves heads / key_value_heads query heads"
    )
    head_width: int = Field(gt=0, description="width of one head")
    rope: RopeConfig | None = Field(
        RopeConfig(), description="rotary positions; null for a layer without positions (NoPE)"
    )
    query_key_norm: Literal["none", "head", "full", "after_rope"] = Field(
        "none",
        description="RMS norm of queries and keys: per head before rotation, over all heads at once before rotation, or "
        "per head without a gain after it (the last only in layers that rotate)",
    )
    query_key_value_bias: bool = Field(False, description="biases on the query, key and value projections")
    output_bias: bool = Field(False, description="bias on the output projection")
    scale: float | None = Field(None, gt=0, description="factor on q·k; null for head_width^-½")
    key_multiplier: float = Field(1.0, description="constant factor on the keys (Falcon-H1)")
    temperature: TemperatureConfig | None = Field(None, description="query temperature that grows with the position")
    softcap: float | None = Field(None, gt=0, description="c in c·tanh(score/c), before the mask (Gemma 2)")
    sinks: bool = Field(False, description="a learned logit per head that takes probability and gives no value")
    gate: GateConfig | None = Field(None, description="output or value gate computed from the input")
    window: int | None = Field(None, gt=0, description="keys a query may see, itself included; null for all")
    chunk: int | None = Field(
        None, gt=0, description="a query sees keys of its own chunk of this many positions only; null for all"
    )

    dual_chunk: DualChunkConfig | None = Field(
        None, description="inference far beyond the trained length without training; null for plain positions"
    )

    @model_validator(mode="after")
    def _fits(self) -> AttentionConfig:
        if self.heads % self.key_value_heads:
            raise ValueError(f"heads ({self.heads}) must be a multiple of key_value_heads ({self.key_value_heads})")
        if self.rope is not None and self.rope.rotated(self.head_width) % 2:
            raise ValueError(
                f"an even number of channels must rotate, not {self.rope.rotated(self.head_width)} of {self.head_width}"
            )
        if self.dual_chunk is not None and self.rope is None:
            raise ValueError("dual_chunk changes rotary positions: set rope")
        if self.dual_chunk is not None and (
            self.window or self.chunk or self.softcap or self.sinks or self.query_key_norm == "after_rope"
        ):
            raise ValueError("dual_chunk goes with none of window, chunk, softcap, sinks and query_key_norm after_rope")
        return self

    def build(self, site: Site) -> Attention:
        return Attention(self, site)

    def mixing_flops(self, length: int) -> float:
        return 4 * self.heads * self.head_width * mean_keys(length, self.window, self.chunk)

    @property
    def input_width(self) -> int:
        return (self.heads + 2 * self.key_value_heads) * self.head_width

    @property
    def output_width(self) -> int:
        return self.heads * self.head_width

    @property
    def key_value_width(self) -> int:
        return 2 * self.key_value_heads * self.head_width

    @property
    def reach(self) -> int | None:
        return min((limit for limit in (self.window, self.chunk) if limit is not None), default=None)

    @property
    def divided(self) -> Mapping[str, int]:
        return {"heads": self.heads, "key_value_heads": self.key_value_heads}

    @property
    def bounds_logits(self) -> bool:
        return self.query_key_norm != "none"

    def describe(self) -> str:
        grouped = "" if self.heads == self.key_value_heads else f"/{self.key_value_heads}"
        words = ["attention", f"{self.heads}{grouped} heads × {self.head_width}"]
        words += [f"window {self.window}"] if self.window else []
        words += [f"chunk {self.chunk}"] if self.chunk else []
        words.append(self.rope.describe() if self.rope else "NoPE")
        words += [NORM_WORDS[self.query_key_norm]] if self.query_key_norm != "none" else []
        biases = "q, k, v" * self.query_key_value_bias + ", o" * self.output_bias
        words += [f"biases on {biases.removeprefix(', ')}"] if biases else []
        words += [f"scale {self.scale:.4g}"] if self.scale else []
        words += ["query temperature"] if self.temperature else []
        words += [f"softcap {self.softcap:g}"] if self.softcap else []
        words += ["sinks"] if self.sinks else []
        if self.gate:
            words.append(f"{self.gate.activation} gate on the {self.gate.place}, {self.gate.form}")
        return ", ".join(words)


class Attention(SoftmaxMixer):
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
        return TokenCache({"keys": stream, "values": stream}, room, dtype, device, self.config.reach)

    def logit_factors(self, factor_H: Tensor) -> Sequence[tuple[Linear, Sequence[tuple[Rows, Tensor]]]]:
        config = self.config
        query, key = in_order((config.heads, config.head_width), (config.key_value_heads, config.head_width))
        if config.heads != config.key_value_heads:  # a key is shared by heads, of which only some are too large
            return [(self.query_key_value, [(query, factor_H)])]
        return [(self.query_key_value, [(query, factor_H.sqrt()), (key, factor_H.sqrt())])]

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
