"""Softmax attention with the options of published models; the config says which of them a layer has.

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

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import sigmoid, silu

from ingot.kernels.attention.attend_paged import attend_paged
from ingot.kernels.attention.attention_options import AttentionOptions
from ingot.kernels.attention.write_kv import config_writes_projection, write_kv
from ingot.kernels.layer.qk_norm_rope import config_allowed, qk_norm_rope
from ingot.model.context import Context
from ingot.model.linear import Linear
from ingot.model.matrices import Rows, in_order
from ingot.model.mixers.attend import attend
from ingot.model.mixers.cache import Cache, CacheShape, TokenCache
from ingot.model.mixers.dual_chunk import DualChunkConfig, dual_chunk_attention, rotate_keys
from ingot.model.mixers.mask import mean_keys
from ingot.model.mixers.mixer import MixerConfig, Site, SoftmaxMixer
from ingot.model.norm import RmsNorm
from ingot.model.order import local
from ingot.model.positions.config import RopeConfig
from ingot.model.positions.rope import rotation
from ingot.model.positions.scaling import LongRopeScaling
from ingot.model.sharding import Sharding
from ingot.workspace.config import Config
from ingot.workspace.functions import FunctionName
from ingot.workspace.outside import load_outside

OWN_BACKEND = FunctionName("attention backend", "attend(query, key, value, mask, options)")
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
    backend: Annotated[str, OWN_BACKEND] | None = Field(
        None,
        description="what computes whole sequences, without a cache: file.py:function of yours; null: the fastest that fits",
    )

    @model_validator(mode="after")
    def _backend_fits(self) -> AttentionConfig:
        if self.backend is None:
            return self
        if self.dual_chunk is not None:
            raise ValueError("dual_chunk computes its attention by itself: leave backend out")
        known = getattr(load_outside(self.backend), "understands", ())
        for name in ("softcap", "sinks"):
            if getattr(self, name) and name not in known:
                function = self.backend.rpartition(":")[2]
                raise ValueError(
                    f"{name}: the backend {function} does not say that it understands it; leave {name} out, or write "
                    f"{function}.understands = {{{name!r}}}"
                )
        return self

    @model_validator(mode="after")
    def _fits(self) -> AttentionConfig:
        if self.heads % self.key_value_heads:
            raise ValueError(f"heads ({self.heads}) must be a multiple of key_value_heads ({self.key_value_heads})")
        if self.rope is not None and self.rope.rotated(self.head_width) % 2:
            raise ValueError(
                f"an even number of channels must be rotated, not {self.rope.rotated(self.head_width)} of {self.head_width}"
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
    def clippable(self) -> bool:
        return self.query_key_norm == "none"

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
        self.backend = None if config.backend is None else load_outside(config.backend)
        self.qk_kernel = config_allowed(config, site.norm)
        self.writes_projection = config_writes_projection(config, site.norm)

    def sharding(self) -> Sharding:
        config, norms = self.config, ("query_norm", "key_norm")
        rows = ["query_key_value"]
        rows += norms if config.query_key_norm == "full" else ()
        rows += ["gate"] if config.gate is not None else []
        rows += ["sinks"] if config.sinks else []
        shared = norms if config.query_key_norm == "head" else ()
        return Sharding(tuple(rows), ("output",), ("heads", "key_value_heads"), shared)

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

    def make_cache(self, cache_shape: CacheShape, dtype: torch.dtype, device: torch.device) -> TokenCache:
        stream = (self.config.key_value_heads, self.config.head_width)
        return TokenCache({"keys": stream, "values": stream}, cache_shape, dtype, device, self.config.reach)

    def logit_factors(self, factor_H: Tensor) -> Sequence[tuple[Linear, Sequence[tuple[Rows, Tensor]]]]:
        config = self.config
        query, key = in_order((config.heads, config.head_width), (config.key_value_heads, config.head_width))
        if config.heads != config.key_value_heads:  # a key is shared by heads, of which only some are too large
            return [(self.query_key_value, [(query, factor_H)])]
        return [(self.query_key_value, [(query, factor_H.sqrt()), (key, factor_H.sqrt())])]

    def options(self) -> AttentionOptions:
        """The options for backends and kernels."""
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
        if config.query_key_norm == "after_rope" and config.rope is not None:  # Llama 4 norms only what it rotates
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
        layer = self.layer if context.wants_logits else None
        return attend(query, key, value, context, self.options(), layer=layer, backend=self.backend)

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
        """The arguments that `qk_norm_rope` and `write_kv` have in common."""
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
