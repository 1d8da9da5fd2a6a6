"""The linear layer and the embedding that all parts use: torch's, plus an optional rounding of the weight (quantise.py).

On the meta device, where models are only counted, nothing is drawn: torch would load its compiler to do that.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn.functional import linear


class Linear(nn.Linear):
    """y = x Wᵀ + b; with a `rounding` the weight passes through it first (quantisation-aware training)."""

    rounding: Callable[[Tensor], Tensor] | None = None

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            super().reset_parameters()

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight if self.rounding is None else self.rounding(self.weight)
        return linear(x, weight, self.bias)


class Embedding(nn.Embedding):
    """A row per token."""

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            super().reset_parameters()
