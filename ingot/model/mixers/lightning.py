"""Lightning attention: linear attention with a fixed decay per head (arXiv 2401.04658; MiniMax-01, arXiv 2501.08313).

    q, k, v = f(W x)                                     f = silu; no positions and no scale
    S_t = e^{−s_h} S_{t−1} + k_t v_tᵀ      o_t = S_tᵀ q_t
    y = W_o ( σ(W_g x) · rms(o) )                        the norm runs over all heads together

    s_h = 2^{−8h/H} · (1 − ℓ/(L − 1 + 10⁻⁵) + 10⁻⁵)      head h = 1 … H of layer ℓ = 0 … L − 1

The first head forgets fastest, and the last layer hardly forgets at all.

Parameters: query_key_value [3·H·W, D] in the order [queries | keys | values], each head after head; gate [H·W, D];
norm.gain [H·W]; output [D, H·W].
Shapes: B rows, T tokens, D width, H heads, W head width.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import gelu, relu, silu

from ingot.model.context import Context
from ingot.model.linear import Linear
from ingot.model.matrices import in_order
from ingot.model.mixers.cache import Cache
from ingot.model.mixers.linear_attention import linear_attention
from ingot.model.mixers.mixer import MixerConfig, Site
from ingot.model.mixers.recurrent import RecurrentMixer, precise, state_cache
from ingot.model.norm import RmsNorm

DEPTH_EPSILON = 1e-5  # keeps the slopes of the last layer, and of a model of one layer, finite and above zero


class LightningConfig(MixerConfig):
    """Lightning linear attention with a fixed decay per head (arXiv 2401.04658; MiniMax-01, arXiv 2501.08313)."""

    kind: Literal["lightning"] = Field("lightning", description="which mixer this is")
    heads: int = Field(gt=0, description="heads")
    head_width: int = Field(gt=0, description="width of one head")
    activation: Literal["silu", "gelu_tanh", "relu"] = Field("silu", description="on queries, keys and values")
    norm_epsilon: float = Field(1e-6, gt=0, description="ε of the norm over all heads' outputs")

    def build(self, site: Site) -> Lightning:
        return Lightning(self, site)

    def describe(self) -> str:
        return f"lightning attention, {self.heads} heads × {self.head_width}"

    def mixing_flops(self, length: int) -> float:
        return 2 * 2 * self.heads * self.head_width**2  # the state is written and read

    @property
    def input_width(self) -> int:
        return 3 * self.heads * self.head_width

    @property
    def output_width(self) -> int:
        return self.heads * self.head_width


def slopes(heads: int, layer: int, depth: int, device: torch.device | None = None) -> Tensor:
    """s [H] of one layer."""
    factor = 1 - layer / (depth - 1 + DEPTH_EPSILON) + DEPTH_EPSILON
    return torch.exp2(-8 / heads * torch.arange(1, heads + 1, device=device)) * factor


class Lightning(RecurrentMixer):
    """Linear attention whose heads forget at fixed rates."""

    def __init__(self, config: LightningConfig, site: Site) -> None:
        super().__init__()
        self.config = config
        width = config.heads * config.head_width
        self.site = site
        self.query_key_value = Linear(site.width, 3 * width, bias=False)
        self.matrices = {"query_key_value.weight": in_order(*((config.heads, config.head_width),) * 3)}
        self.gate = Linear(site.width, width, bias=False)
        self.norm = RmsNorm(width, site.norm, epsilon=config.norm_epsilon)
        self.output = Linear(width, site.width, bias=False)

    def state_shapes(self) -> dict[str, tuple[int, ...]]:
        return {"recurrent": (self.config.heads, self.config.head_width, self.config.head_width)}

    def forward(self, x_BTD: Tensor, context: Context, cache: Cache | None = None) -> Tensor:
        projected = self._activate(self.query_key_value(x_BTD))
        config = self.config
        query, key, value = projected.unflatten(-1, (3, config.heads, -1)).unbind(2)
        slopes_H = slopes(config.heads, self.site.layer, self.site.depth, value.device)
        decay_BTH = -slopes_H.to(precise(value)).expand(value.shape[:3])
        mixed = linear_attention(query, key, value, decay_BTH, context, state_cache(cache))
        normed = self.norm(mixed.flatten(2).to(x_BTD.dtype))
        return self.output(torch.sigmoid(self.gate(x_BTD)) * normed)

    def _activate(self, x: Tensor) -> Tensor:
        if self.config.activation == "gelu_tanh":
            return gelu(x, approximate="tanh")
        return silu(x) if self.config.activation == "silu" else relu(x)
