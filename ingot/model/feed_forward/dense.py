"""The dense feed-forward layer, gated (SwiGLU and its variants) or not.

    gated      down( act(m·gate x) ⊙ (up x + o) )     (Shazeer, "GLU variants improve transformer", arXiv 2002.05202)
    ungated    down( act(up x) )

With a clamp c, gate x is at most c and |up x| at most c before anything else happens to them (gpt-oss). `activate` is the part
between the two products; the usual one, silu(gate) ⊙ up, is kernels/layer/swiglu.py. A mixture's experts (experts.py) use both.

Shapes: B rows, T tokens, D width, F inner width.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import gelu, relu, silu

from ingot.kernels.layer.swiglu import is_swiglu, swiglu
from ingot.model.context import Context
from ingot.model.feed_forward.channel import ChannelConfig
from ingot.model.linear import Linear
from ingot.model.matrices import in_order
from ingot.model.mixers.mixer import Site
from ingot.model.sharding import Sharding

Activation = Literal["silu", "gelu", "gelu_tanh", "relu", "relu_squared", "swish_1702"]
ACTIVATIONS: Mapping[Activation, Callable[[Tensor], Tensor]] = {
    "silu": silu,
    "gelu": gelu,
    "gelu_tanh": partial(gelu, approximate="tanh"),
    "relu": relu,
    "relu_squared": lambda x: relu(x).square(),
    "swish_1702": lambda x: x * torch.sigmoid(1.702 * x),
}


class FeedForwardConfig(ChannelConfig):
    """Gated feed-forward: down(act(gate x) ⊙ up x) (Shazeer, arXiv 2002.05202); ungated: down(act(up x))."""

    kind: Literal["dense"] = Field("dense", description="which feed-forward this is")
    width: int = Field(gt=0, description="inner width")
    gated: bool = Field(True, description="with a gate projection")
    activation: Activation = Field("silu", description="activation of the gate; swish_1702 is x·σ(1.702·x) (gpt-oss)")
    bias: bool = Field(False, description="biases on all projections")
    clamp: float | None = Field(None, gt=0, description="gate ≤ clamp and |up| ≤ clamp before the product (gpt-oss)")
    up_offset: float = Field(0.0, description="added to up before the product (gpt-oss: 1)")
    gate_multiplier: float = Field(1.0, description="factor on the gate inside the activation (Falcon-H1)")
    output_multiplier: float = Field(1.0, description="factor on the output (Falcon-H1)")

    @model_validator(mode="after")
    def _fits(self) -> FeedForwardConfig:
        if not self.gated and (self.clamp, self.up_offset, self.gate_multiplier) != (None, 0, 1):
            raise ValueError("clamp, up_offset and gate_multiplier belong to a gated feed-forward")
        return self

    def build(self, site: Site) -> FeedForward:
        return FeedForward(self, site.width)

    def describe(self) -> str:
        return f"{'gated ' if self.gated else ''}feed-forward {self.width} ({self.activation_words})"

    @property
    def activation_words(self) -> str:
        """The activation in words, with its clamp."""
        return self.activation.replace("_", " ") + (f", clamped at {self.clamp:g}" if self.clamp else "")

    @property
    def inner_width(self) -> int:
        return self.width

    @property
    def has_gate(self) -> bool:
        return self.gated

    @property
    def divided(self) -> Mapping[str, int]:
        return {"width": self.width}


def activate(config: FeedForwardConfig, projected: Tensor) -> Tensor:
    """The input of `down`: from [gate | up] of width 2·F if gated, else from `up` of width F."""
    activation = ACTIVATIONS[config.activation]
    if not config.gated:
        return activation(projected)
    gate, up = projected.chunk(2, dim=-1)
    if config.clamp is not None:
        gate, up = gate.clamp(max=config.clamp), up.clamp(-config.clamp, config.clamp)
    if config.gate_multiplier != 1:
        gate = gate * config.gate_multiplier
    return activation(gate) * (up + config.up_offset if config.up_offset else up)


class FeedForward(nn.Module):
    """Gate and up are one matrix `gate_up` with the rows [gate | up]; without a gate it is `up`."""

    def __init__(self, config: FeedForwardConfig, width: int) -> None:
        super().__init__()
        self.config, self.is_swiglu = config, is_swiglu(config)
        if config.gated:
            self.gate_up = Linear(width, 2 * config.width, bias=config.bias)
            self.matrices = {"gate_up.weight": in_order((1, config.width), (1, config.width))}
        else:
            self.up = Linear(width, config.width, bias=config.bias)
        self.down = Linear(config.width, width, bias=config.bias)

    def sharding(self) -> Sharding:
        return Sharding(("gate_up" if self.config.gated else "up",), ("down",), ("width",))

    def forward(self, x_BTD: Tensor, context: Context | None = None) -> Tensor:
        """The output [B, T, D]; tokens do not see each other, so nothing of the context is read."""
        projected = self.gate_up(x_BTD) if self.config.gated else self.up(x_BTD)
        inner = swiglu(projected) if self.is_swiglu else activate(self.config, projected)
        out_BTD = self.down(inner)
        return out_BTD * self.config.output_multiplier if self.config.output_multiplier != 1 else out_BTD
