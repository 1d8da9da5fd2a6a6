"""Kimi delta attention (Kimi Linear, arXiv 2510.26692): the delta rule with a decay per channel.

    q, k, v = silu(convolution(W x));  q, k of length one, q · W^−½
    β = σ(W_b x)                                                   one per head and token
    g = −e^A · softplus(W_f↑ W_f↓ x + bias)                        one per channel of the key and token
    o = delta_rule(q, k, v, g, β)                                  kernels/linear/delta_rule.py
    y = W_o ( rms(o) · gain · σ(W_g↑ W_g↓ x) )                     the norm runs over each head

Parameters: query_key_value [3·H·W, D] in the order [queries | keys | values]; convolution.weight [3·H·W, taps] likewise;
beta [H, D]; decay_down [W, D], decay_up [H·W, W]; decay [H] (A); time_step_bias [H·W]; gate_down [W, D],
gate_up [H·W, W]; norm.gain [W]; output [D, H·W].
Shapes: B rows, T tokens, D width, H heads, W head width.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
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


class KdaConfig(MixerConfig):
    """Kimi delta attention (Kimi Linear, arXiv 2510.26692): the delta rule with a decay per channel."""

    kind: Literal["kda"] = Field("kda", description="which mixer this is")
    heads: int = Field(gt=0, description="heads")
    head_width: int = Field(gt=0, description="width of a query, key or value head, and of the gates' bottleneck")
    convolution: int = Field(4, gt=0, description="taps of the causal convolutions")

    def build(self, site: Site) -> Kda:
        return Kda(self, site)

    def describe(self) -> str:
        return f"Kimi delta attention, {self.heads} heads × {self.head_width}"

    def mixing_flops(self, length: int) -> float:
        return 2 * 3 * self.heads * self.head_width**2  # the state is read, corrected, read again

    @property
    def input_width(self) -> int:  # queries, keys, values, decay, output gate
        return 5 * self.heads * self.head_width

    @property
    def output_width(self) -> int:
        return self.heads * self.head_width


class Kda(RecurrentMixer):
    """The delta rule with a decay for every channel of a key."""

    def __init__(self, config: KdaConfig, site: Site) -> None:
        super().__init__()
        self.config = config
        heads, width = config.heads, config.head_width
        self.query_key_value = Linear(site.width, 3 * heads * width, bias=False)
        self.matrices = {"query_key_value.weight": in_order(*((heads, width),) * 3)}
        self.convolution = Convolution(3 * heads * width, config.convolution)
        self.beta = Linear(site.width, heads, bias=False)
        self.decay_down = Linear(site.width, width, bias=False)
        self.decay_up = Linear(width, heads * width, bias=False)
        self.decay = nn.Parameter(torch.zeros(heads))
        self.time_step_bias = nn.Parameter(torch.zeros(heads * width))
        self.gate_down = Linear(site.width, width, bias=False)
        self.gate_up = Linear(width, heads * width, bias=False)
        self.norm = GatedNorm(width, site.norm.epsilon, "sigmoid")
        self.output = Linear(heads * width, site.width, bias=False)

    def reset_special(self, generator: torch.Generator) -> None:
        """The first decays and time steps."""
        reset_decay(self.decay, self.time_step_bias, generator)

    def state_shapes(self) -> dict[str, tuple[int, ...]]:
        heads, width = self.config.heads, self.config.head_width
        return {"recurrent": (heads, width, width), "convolution": (self.config.convolution - 1, 3 * heads * width)}

    def forward(self, x_BTD: Tensor, context: Context, cache: Cache | None = None) -> Tensor:
        heads, states = self.config.heads, state_cache(cache)
        mixed = self.convolution(self.query_key_value(x_BTD), context, states)
        query, key, value = mixed.unflatten(-1, (3, heads, -1)).unbind(2)
        steps = time_steps(self.decay_up(self.decay_down(x_BTD)), self.time_step_bias).unflatten(-1, (heads, -1))
        decay_BTHW = -precise(self.decay).exp()[:, None] * steps
        out_BTHW = delta_rule(
            unit(query) * self.config.head_width**-0.5,
            unit(key),
            value,
            decay_BTHW,
            self.beta(x_BTD).sigmoid(),
            context,
            states,
        )
        gate_BTHW = self.gate_up(self.gate_down(x_BTD)).unflatten(-1, (heads, -1))
        return self.output(self.norm(out_BTHW, gate_BTHW).flatten(2))
