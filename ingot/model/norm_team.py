"""The norm of norm.py and its gradient in one pass each, in float32 on a CPU; torch's differs in the last bit.

    y = r g ⊙ x,   r = 1 / sqrt(mean(x²) + ε)        ∂x = r (g ⊙ ∂ − x r² mean(g ⊙ ∂ ⊙ x))        ∂g = Σ_n r ∂ ⊙ x

All tensors are contiguous. Shapes: N tokens, D width.
"""

from __future__ import annotations

from functools import cache
from types import ModuleType

import torch
from torch import Tensor

from ingot.model import team
from ingot.model.rooms import new_room


def norm_forward(x: Tensor, gain_D: Tensor, epsilon: float) -> Tensor:
    """The norm over the last axis."""
    out, width = new_room(*x.shape), len(gain_D)
    team.run(_loops().forward, x, gain_D, out, x.numel() // width, width, float(epsilon))
    return out


def norm_backward(
    x: Tensor, gain_D: Tensor, epsilon: float, up: Tensor, more: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The gradients of x, to which `more` is added, and of the gain."""
    out, d_gain_D, width = new_room(*x.shape), torch.empty_like(gain_D), len(gain_D)
    shares = new_room(torch.get_num_threads(), width)
    sizes = (x.numel() // width, width, float(epsilon))
    team.run(_loops().backward, x, gain_D, up, out, d_gain_D, shares, *sizes, 0 if more is None else more)
    return out, d_gain_D


@cache
def _loops() -> ModuleType:
    from ingot.model import norm_team_loops

    return norm_team_loops
