"""Mamba-2 (state-space duality, arXiv 2405.21060), as in Nemotron-H and Falcon-H1.

    [z | x | B | C | a] = W x            [x | B | C] ← silu(convolution([x | B | C]))
    Δ = clamp(softplus(a + bias))        one per head and token
    h_t = e^{−e^A Δ_t} h_{t−1} + Δ_t B_t x_tᵀ        y_t = h_tᵀ C_t + skip · x_t
    y = W_o norm(y, z)

which is linear attention (kernels/linear/decayed_attention.py) with queries C, keys B, values Δx and the decay −e^A Δ; the heads
of a group share B and C. The end is a grouped norm with the gate silu(z) before or after it, or y · silu(z) without a norm.

Δ is clamped wherever it is used; transformers leaves out the clamp of Nemotron-H when it decodes single tokens.

Parameters: input [2·H·V + 2·G·K + H, D] in the order [z | x | B | C | a], with biases if wanted; convolution.weight
[H·V + 2·G·K, taps], convolution.bias; decay [H] (A); time_step_bias [H]; skip [H]; norm.gain [H·V] if there is a norm;
output [D, H·V], with a bias if wanted. Head h belongs to group h // (H/G).
Shapes: B rows, T tokens, D width, H heads of width V in G groups, K state size.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import silu

from ingot.model.context import Context
from ingot.model.linear import Linear
from ingot.model.matrices import in_order
from ingot.model.mixers.cache import Cache
from ingot.model.mixers.convolution import Convolution
from ingot.model.mixers.decay import reset_decay, time_steps
from ingot.model.mixers.gated_norm import GatedNorm
from ingot.model.mixers.linear_attention import linear_attention
from ingot.model.mixers.mixer import MixerConfig, Site
from ingot.model.mixers.recurrent import RecurrentMixer, precise, state_cache


class Mamba2Config(MixerConfig):
    """Mamba-2 (state-space duality, arXiv 2405.21060)."""

    kind: Literal["mamba2"] = Field("mamba2", description="which mixer this is")
    heads: int = Field(gt=0, description="heads")
    head_width: int = Field(gt=0, description="width of one head")
    state: int = Field(gt=0, description="size of the state of each channel")
    groups: int = Field(1, gt=0, description="groups of heads that share B and C")
    convolution: int = Field(4, gt=0, description="taps of the causal convolution on x, B and C")
    convolution_bias: bool = Field(True, description="bias of the convolution")
    projection_bias: bool = Field(False, description="biases on the input and output projections")
    time_step_min: float = Field(0.0, ge=0, description="lower bound of Δ after softplus")
    time_step_max: float | None = Field(None, gt=0, description="upper bound of Δ; null for none")
    norm: Literal["none", "gate_first", "gate_last"] = Field(
        "gate_first", description="grouped RMS norm of the output: after the z-gate, before it, or none"
    )
    input_multiplier: float = Field(1.0, description="factor on the mixer's input (Falcon-H1)")
    section_multipliers: tuple[float, float, float, float, float] = Field(
        (1.0, 1.0, 1.0, 1.0, 1.0), description="factors on z, x, B, C and Δ after the input projection (Falcon-H1)"
    )

    @model_validator(mode="after")
    def _fits(self) -> Mamba2Config:
        if self.heads % self.groups:
            raise ValueError(f"heads ({self.heads}) must be a multiple of groups ({self.groups})")
        return self

    def build(self, site: Site) -> Mamba2:
        return Mamba2(self, site)

    def describe(self) -> str:
        groups = f", {self.groups} groups" if self.groups > 1 else ""
        return f"Mamba-2, {self.heads} heads × {self.head_width}, state {self.state}{groups}"

    def mixing_flops(self, length: int) -> float:
        return 2 * 2 * self.heads * self.head_width * self.state  # the state is written and read

    @property
    def input_width(self) -> int:  # z, x, B, C
        return 2 * (self.heads * self.head_width + self.groups * self.state)

    @property
    def output_width(self) -> int:
        return self.heads * self.head_width


class Mamba2(RecurrentMixer):
    """A state-space layer with one decay per head."""

    def __init__(self, config: Mamba2Config, site: Site) -> None:
        super().__init__()
        self.config = config
        inner, shared = config.heads * config.head_width, config.groups * config.state
        self.sections = (inner, inner, shared, shared, config.heads)  # z, x, B, C, a
        self.input = Linear(site.width, sum(self.sections), bias=config.projection_bias)
        self.matrices = {"input.weight": in_order(*((1, rows) for rows in self.sections))}
        self.convolution = Convolution(inner + 2 * shared, config.convolution, bias=config.convolution_bias)
        self.decay = nn.Parameter(torch.zeros(config.heads))
        self.time_step_bias = nn.Parameter(torch.zeros(config.heads))
        self.skip = nn.Parameter(torch.ones(config.heads))
        if config.norm != "none":
            self.norm = GatedNorm(
                inner, site.norm.epsilon, "silu", groups=config.groups, gate_first=config.norm == "gate_first"
            )
        self.output = Linear(inner, site.width, bias=config.projection_bias)

    def reset_special(self, generator: torch.Generator) -> None:
        """The first decays, time steps and skips."""
        reset_decay(self.decay, self.time_step_bias, generator)
        nn.init.ones_(self.skip)

    def state_shapes(self) -> dict[str, tuple[int, ...]]:
        config = self.config
        return {
            "recurrent": (config.heads, config.state, config.head_width),
            "convolution": (config.convolution - 1, sum(self.sections[1:4])),
        }

    def forward(self, x_BTD: Tensor, context: Context, cache: Cache | None = None) -> Tensor:
        config, states = self.config, state_cache(cache)
        gate, mixed, step_BTH = self._project(x_BTD)
        values, keys, queries = self.convolution(mixed, context, states).split(self.sections[1:4], dim=-1)
        value_BTHV = precise(values.unflatten(-1, (config.heads, -1)))
        key_BTGK, query_BTGK = (x.unflatten(-1, (config.groups, -1)) for x in (keys, queries))
        step_BTH = time_steps(step_BTH, self.time_step_bias).clamp(config.time_step_min, config.time_step_max)
        decay_BTH = -precise(self.decay).exp() * step_BTH
        read_BTHV = linear_attention(query_BTGK, key_BTGK, value_BTHV * step_BTH[..., None], decay_BTH, context, states)
        out = torch.addcmul(precise(read_BTHV), value_BTHV, precise(self.skip)[:, None]).flatten(2)
        return self.output(self._gate(out, gate))

    def _project(self, x_BTD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """z, [x | B | C] and a, times their multipliers."""
        config = self.config
        scaled = x_BTD if config.input_multiplier == 1 else x_BTD * config.input_multiplier
        projected = self.input(scaled)
        if any(factor != 1 for factor in config.section_multipliers):
            parts = zip(projected.split(self.sections, dim=-1), config.section_multipliers, strict=True)
            projected = torch.cat([part * factor for part, factor in parts], dim=-1)
        inner, _, _, _, heads = self.sections
        gate, mixed, step = projected.split((inner, projected.shape[-1] - inner - heads, heads), dim=-1)
        return gate, mixed, step

    def _gate(self, out: Tensor, gate: Tensor) -> Tensor:
        if self.config.norm == "none":
            return (out * silu(precise(gate))).to(gate.dtype)
        gated: Tensor = self.norm(out, gate)
        return gated
