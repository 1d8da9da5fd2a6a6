"""Learned decays of a recurrent state (how fast it forgets), and the initial values of their parameters.

    g = −e^A · softplus(a + b) ≤ 0        the state is multiplied by e^g

a comes from the token (the time step, in the language of state-space models), b (`time_step_bias`) and the log rate A
(`decay`) are parameters. At the start the rates e^A are uniform in [1, 16] and the time steps softplus(b) log-uniform in
[0.001, 0.1], so that the heads remember over a few to a few thousand tokens (Mamba-2, arXiv 2405.21060; also Gated
DeltaNet and KDA).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from ingot.model.mixers.recurrent import precise

RATES = (1.0, 16.0)
TIME_STEPS = (0.001, 0.1)


def time_steps(a: Tensor, bias: Tensor) -> Tensor:
    """softplus(a + b), in float32 at least."""
    return softplus(precise(a) + precise(bias))


@torch.no_grad()
def reset_decay(decay: nn.Parameter, time_step_bias: nn.Parameter, generator: torch.Generator) -> None:
    """Draw the log rates and the biases."""
    drawn = torch.empty(decay.shape, device=generator.device).uniform_(*RATES, generator=generator)
    decay.copy_(drawn.log())
    low, high = (math.log(bound) for bound in TIME_STEPS)
    drawn = torch.empty(time_step_bias.shape, device=generator.device).uniform_(low, high, generator=generator).exp()
    time_step_bias.copy_(drawn + torch.log(-torch.expm1(-drawn)))  # the inverse of softplus
