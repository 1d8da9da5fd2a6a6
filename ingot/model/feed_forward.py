"""Gated feed-forward: down( act(gate x) ⊙ up x )   (Shazeer, "GLU variants improve transformer", arXiv 2002.05202)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import gelu, silu

from ingot.model.config import FeedForwardConfig


class FeedForward(nn.Module):
    """Gate and up are one matrix: [gate | up]."""

    def __init__(self, config: FeedForwardConfig, width: int) -> None:
        super().__init__()
        self.config = config
        self.gate_up = nn.Linear(width, 2 * config.width, bias=False)
        self.down = nn.Linear(config.width, width, bias=False)

    def forward(self, x_BTD: Tensor) -> Tensor:
        gate, up = self.gate_up(x_BTD).chunk(2, dim=-1)
        activated = silu(gate) if self.config.activation == "silu" else gelu(gate, approximate="tanh")
        return self.down(activated * up)
