"""The linear layer and the embedding that all parts use: torch's, plus an optional rounding of the weight (quantise.py).

While a training step runs in 16 bits, layers multiply with bf16 copies of their weights, made once a step (train/bf16_copies.py).

On the meta device, where models are only counted, nothing is drawn: torch would load its compiler to do that.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn.functional import linear


class Linear(nn.Linear):
    """y = x Wᵀ + b; with a `rounding` the weight passes through it first (quantisation-aware training)."""

    rounding: Callable[[Tensor], Tensor] | None = None
    weight_copy: Tensor | None = None  # a copy to multiply with instead (train/bf16_copies.py)
    multiply: Callable[[Tensor, Tensor, Tensor | None], Tensor] = staticmethod(linear)  # train/float8.py replaces it

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            super().reset_parameters()

    def weight_shard(self) -> Tensor:
        """The rows and columns of the weight that this rank has: all, but for train/parallel/divided.py."""
        return self.weight

    def bias_shard(self) -> Tensor | None:
        """What this rank adds to its product."""
        return self.bias

    def matrix(self) -> Tensor:
        """The weight that the product uses: rounded, if training is quantised."""
        if self.weight_copy is not None:
            return self.weight_copy
        return self.weight_shard() if self.rounding is None else self.rounding(self.weight_shard())

    def forward(self, x: Tensor) -> Tensor:
        return self.multiply(x, self.matrix(), self.bias_shard())


class Embedding(nn.Embedding):
    """A row per token."""

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            super().reset_parameters()
