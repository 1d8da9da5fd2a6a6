"""Gated DeltaNet (arXiv 2412.06464) as in Qwen3-Next.

    q, k, v = silu(convolution(W x));  q, k of length one, q · K^−½
    β = σ(W_b x)       g = −e^A · softplus(W_a x + bias)          one of each per value head and token
    o = delta_rule(q, k, v, g, β)                                 kernels/linear/delta_rule.py
    y = W_o ( rms(o) · gain · silu(W_z x) )                       the norm runs over each head

Each key head serves value_heads / key_heads value heads.

Parameters: input [2·G·K + 2·H·V, D] in the order [queries | keys | values | gates z]; rates [2·H, D] in the order
[β | a]; convolution.weight [2·G·K + H·V, taps]; decay [H] (A); time_step_bias [H]; norm.gain [V]; output [D, H·V].
Value head h belongs to key head h // (H/G).
Shapes: B rows, T tokens, D width, G key heads of width K, H value heads of width V.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from ingot.model.context import Context
from ingot.model.linear import Linear
from ingot.model.matrices import in_order
from ingot.model.mixers.cache import Cache
from ingot.model.mixers.convolution import Convolution
from ingot.model.mixers.decay import reset_decay, time_steps
from ingot.model.mixers.delta import delta_rule, unit
from ingot.model.mixers.gated_norm import GatedNorm
from ingot.model.mixers.mixer import MixerConfig, Site
from ingot.model.mixers.recurrent import RecurrentMixer, precise, state_cache


class GatedDeltaConfig(MixerConfig):
    """Gated DeltaNet (arXiv 2412.06464) as in Qwen3-Next."""

    kind: Literal["gated_delta"] = Field("gated_delta", description="which mixer this is")
    key_heads: int = Field(gt=0, description="query and key heads")
    value_heads: int = Field(gt=0, description="value heads, a multiple of key_heads")
    key_width: int = Field(gt=0, description="width of a query or key head")
    value_width: int = Field(gt=0, description="width of a value head")
    convolution: int = Field(4, gt=0, description="taps of the causal convolution on queries, keys and values")

    @model_validator(mode="after")
    def _fits(self) -> GatedDeltaConfig:
        if self.value_heads % self.key_heads:
            raise ValueError(f"value_heads ({self.value_heads}) must be a multiple of key_heads ({self.key_heads})")
        return self

    def build(self, site: Site) -> GatedDelta:
        return GatedDelta(self, site)

    def describe(self) -> str:
        keys, values = f"{self.key_heads} × {self.key_width}", f"{self.value_heads} × {self.value_width}"
        return f"gated DeltaNet, keys {keys}, values {values}"

    def mixing_flops(self, length: int) -> float:
        return 2 * 3 * self.value_heads * self.key_width * self.value_width  # read, corrected, read again

    @property
    def input_width(self) -> int:  # queries, keys, values, output gate
        return 2 * (self.key_heads * self.key_width + self.value_heads * self.value_width)

    @property
    def output_width(self) -> int:
        return self.value_heads * self.value_width


class GatedDelta(RecurrentMixer):
    """The delta rule with one decay per head."""

    def __init__(self, config: GatedDeltaConfig, site: Site) -> None:
        super().__init__()
        self.config = config
        self.key_channels = config.key_heads * config.key_width
        self.value_channels = config.value_heads * config.value_width
        self.input = Linear(site.width, 2 * self.key_channels + 2 * self.value_channels, bias=False)
        self.rates = Linear(site.width, 2 * config.value_heads, bias=False)
        keys, values = (config.key_heads, config.key_width), (config.value_heads, config.value_width)
        self.matrices = {
            "input.weight": in_order(keys, keys, values, values),
            "rates.weight": in_order((1, config.value_heads), (1, config.value_heads)),
        }
        self.convolution = Convolution(2 * self.key_channels + self.value_channels, config.convolution)
        self.decay = nn.Parameter(torch.zeros(config.value_heads))
        self.time_step_bias = nn.Parameter(torch.zeros(config.value_heads))
        self.norm = GatedNorm(config.value_width, site.norm.epsilon, "silu")
        self.output = Linear(self.value_channels, site.width, bias=False)

    def reset_special(self, generator: torch.Generator) -> None:
        """The first decays and time steps."""
        reset_decay(self.decay, self.time_step_bias, generator)

    def state_shapes(self) -> dict[str, tuple[int, ...]]:
        config = self.config
        return {
            "recurrent": (config.value_heads, config.key_width, config.value_width),
            "convolution": (config.convolution - 1, 2 * self.key_channels + self.value_channels),
        }

    def forward(self, x_BTD: Tensor, context: Context, cache: Cache | None = None) -> Tensor:
        config, states = self.config, state_cache(cache)
        mixed, gate = self.input(x_BTD).tensor_split((2 * self.key_channels + self.value_channels,), dim=-1)
        query, key, value = self.convolution(mixed, context, states).split(
            (self.key_channels, self.key_channels, self.value_channels), dim=-1
        )
        query_BTGK, key_BTGK = (unit(x.unflatten(-1, (config.key_heads, -1))) for x in (query, key))
        value_BTHV, gate_BTHV = (x.unflatten(-1, (config.value_heads, -1)) for x in (value, gate))
        beta_BTH, step_BTH = self.rates(x_BTD).chunk(2, dim=-1)
        decay_BTH = -precise(self.decay).exp() * time_steps(step_BTH, self.time_step_bias)
        out_BTHV = delta_rule(
            query_BTGK * config.key_width**-0.5,
            key_BTGK,
            value_BTHV,
            decay_BTH[..., None],
            beta_BTH.sigmoid(),
            context,
            states,
        )
        return self.output(self.norm(out_BTHV, gate_BTHV).flatten(2))
