"""Root-mean-square norm: y = x / sqrt(mean(x²) + ε) · g   (Zhang and Sennrich, arXiv 1910.07467)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class RmsNorm(nn.Module):
    """Normalises the last axis; the gain starts at one."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.rms_norm(x, (x.shape[-1],), self.gain.to(x.dtype), self.epsilon)
