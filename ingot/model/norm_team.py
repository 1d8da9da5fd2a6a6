"""The norm of norm.py and its gradient in one pass each, in float32 on a CPU; torch's differs in the last bit.

    y = r g ⊙ x,   r = 1 / sqrt(mean(x²) + ε)        ∂x = r (g ⊙ ∂ − x r² mean(g ⊙ ∂ ⊙ x))        ∂g = Σ_n r ∂ ⊙ x

All tensors are contiguous. The functions give stages (team_plan.py). Shapes: N tokens, D width.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType

import torch

from ingot.model.team import Memory, Stage, Work


def norm_forward(
    x_ND: Memory, gain_D: Memory, out_ND: Memory, size: tuple[int, int], epsilon: float, copy_ND: Memory | int = 0
) -> Stage:
    """The norm of each token to `out`, and x itself to `copy`, if there is one."""
    return _loops().forward, x_ND, gain_D, out_ND, *size, float(epsilon), copy_ND


def norm_backward(
    x_ND: Memory,
    gain_D: Memory,
    up_ND: Memory,
    d_x_ND: Memory,
    d_gain_D: Memory,
    size: tuple[int, int],
    epsilon: float,
    more_ND: Memory | int = 0,
) -> Stage:
    """The gradients of x, to which `more` is added, and of the gain."""
    shares = Work(torch.get_num_threads() * size[1])
    return _loops().backward, x_ND, gain_D, up_ND, d_x_ND, d_gain_D, shares, *size, float(epsilon), more_ND


@cache
def _loops() -> ModuleType:
    from ingot.model import norm_team_loops

    return norm_team_loops
