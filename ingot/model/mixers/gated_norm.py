"""Root-mean-square norm with a gate, at the end of the recurrent mixers.

    gate last    y = rms(x) · gain · f(z)        Gated DeltaNet (f = silu), KDA (f = sigmoid), Falcon-H1 by option
    gate first   y = rms(x · f(z)) · gain        Mamba-2 (f = silu): Nemotron-H

The mean runs over groups of channels: a head, or the channels of the heads that share B and C in Mamba-2, so that a group
can sit on a device of its own. Everything is computed in float32 at least; the result has the gate's dtype.

Parameters: gain [width], which starts at one (never zero-centred, also in models whose other norms are).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm, silu

from ingot.model.mixers.recurrent import precise


class GatedNorm(nn.Module):
    """Normalises `groups` equal parts of the last axis."""

    def __init__(
        self,
        width: int,
        epsilon: float,
        activation: Literal["silu", "sigmoid"],
        *,
        groups: int = 1,
        gate_first: bool = False,
    ) -> None:
        super().__init__()
        self.epsilon, self.groups, self.gate_first = epsilon, groups, gate_first
        self.activation = silu if activation == "silu" else torch.sigmoid
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        x, factor = precise(x), self.activation(precise(gate))
        if self.gate_first:
            x = x * factor
        parts = x.unflatten(-1, (self.groups, -1))
        y = rms_norm(parts, parts.shape[-1:], None, self.epsilon).flatten(-2) * precise(self.gain)
        return (y if self.gate_first else y * factor).to(gate.dtype)
