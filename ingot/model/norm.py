"""Root-mean-square norm: y = x / sqrt(mean(x²) + ε) · g   (Zhang and Sennrich, arXiv 1910.07467).

Two switches that published models use: the gain is w, 1 + w (zero-centred: Gemma, Qwen3-Next) or missing (Llama 4's
queries and keys); the result is rounded to the activations' dtype before the gain (Llama) or after it (OLMo, Gemma). The
arithmetic is in kernels/layer/rms_norm.py.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from ingot.kernels.allow_list import understands
from ingot.kernels.layer import rms_norm
from ingot.workspace.config import Config


class NormConfig(Config):
    """Root-mean-square norm: x / sqrt(mean(x²) + ε) · gain (arXiv 1910.07467)."""

    epsilon: float = Field(1e-5, gt=0, description="ε")
    zero_centred: bool = Field(False, description="the gain is 1 + w, so that weight decay pulls it to 1 (Gemma)")
    cast: Literal["before_gain", "after_gain"] = Field(
        "before_gain", description="where a low-precision model leaves float32; the same in float32"
    )


KERNEL_FIELDS = frozenset(("epsilon", "zero_centred", "cast"))  # fields of a NormConfig that the kernel gets


class RmsNorm(nn.Module):
    """Normalises the last axis. The gain starts at one (at zero if zero-centred: it is then one plus the parameter)."""

    def __init__(self, width: int, config: NormConfig, *, epsilon: float | None = None, gain: bool = True) -> None:
        super().__init__()
        self.config, self.epsilon = config, config.epsilon if epsilon is None else epsilon
        self.gain = nn.Parameter(torch.zeros(width) if config.zero_centred else torch.ones(width)) if gain else None
        self.round_first = config.cast == "before_gain"
        self.kernel = understands(config, KERNEL_FIELDS)

    def over_ranks(self) -> rms_norm.MeanSquare | None:
        """The mean square of channels that several ranks share; None where this one has them all."""
        return None

    def scale(self) -> Tensor | None:
        """The parameter that the norm uses."""
        return self.gain

    def used_gain(self) -> Tensor | None:
        """The gain that the norm multiplies with."""
        gain = self.scale()
        if gain is None or not self.config.zero_centred:
            return gain
        # bfloat16 could not tell 1 + w from its neighbours
        return 1 + gain.to(torch.promote_types(gain.dtype, torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        gain, mean_square = self.used_gain(), self.over_ranks()
        if mean_square is not None:
            return rms_norm.rms_norm_definition(x, gain, self.epsilon, self.round_first, mean_square)
        return rms_norm.rms_norm(x, gain, self.epsilon, self.round_first, kernel=self.kernel)


def add_rms_norm(x: Tensor, y: Tensor, norm: RmsNorm) -> tuple[Tensor, Tensor]:
    """x + y, and the norm of it."""
    return rms_norm.add_rms_norm(x, y, norm.used_gain(), norm.epsilon, norm.round_first, kernel=norm.kernel)
