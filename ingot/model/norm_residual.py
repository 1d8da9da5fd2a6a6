"""A residual sum and the norm of it, in one kernel: training in 16 bits on a GPU (norm_residual_triton.py).

    t = x + y        h = norm(t)

Blocks whose rule is `pre` (block.py) do nothing between two of their parts but this, so the stream goes from block to block as a
sum that is still to be made, `Unsummed`, and every norm makes it on its way. The reference is `RmsNorm` of the sum.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ingot.model.hooks import is_hooked
from ingot.model.mixers.attend_paged_triton import has_triton
from ingot.model.norm import RmsNorm

WIDEST = 8192  # a row is in the registers of one program


class Unsummed(NamedTuple):
    """The residual stream x + y; without y it is x."""

    x_BTD: Tensor
    y_BTD: Tensor | None = None

    def total(self) -> Tensor:
        """The sum, where no norm makes it."""
        return self.x_BTD if self.y_BTD is None else self.x_BTD + self.y_BTD


def add_norm_can(norm: RmsNorm | None, x: Tensor) -> bool:
    """Whether the kernels do what this norm does."""
    if not x.is_cuda or not torch.is_grad_enabled() or norm is None or norm.gain is None or is_hooked(norm):
        return False
    return x.dtype in (torch.bfloat16, torch.float16) and x.shape[-1] <= WIDEST and has_triton()


def add_norm(stream: Unsummed, norm: RmsNorm) -> tuple[Tensor, Tensor]:
    """The sum and its norm."""
    from ingot.model.norm_residual_triton import AddNorm

    gain = norm.used_gain()
    assert gain is not None
    given = *stream, gain, norm.epsilon, norm.config.cast == "before_gain"
    total, normed = AddNorm.apply(*given)  # type: ignore[no-untyped-call]
    return total, normed
