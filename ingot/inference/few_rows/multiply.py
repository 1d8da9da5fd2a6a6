"""y = x Wᵀ for a few rows x on an ARM CPU, with W in float32, int8 or int4: every weight is read once, as it lies.

In a decoding step every weight is used for a handful of rows. Libraries are made for many rows: they first rearrange W, at
the cost of another pass over the memory. The program here (program.py, tiles.py) does not.
"""

from __future__ import annotations

import platform
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ingot.inference.few_rows.task import OUTPUTS, PANEL, STEP, Kind, panels_for
from ingot.inference.few_rows.team import run
from ingot.model.team import openmp

IS_ARM = platform.machine().lower() in ("aarch64", "arm64")


@cache
def program(kind: Kind) -> tuple[Any, int]:
    """What keeps the compiled program alive, and its address; made once in a process, in about a third of a second."""
    from ingot.inference.few_rows.program import compile_program

    return compile_program(kind)


def can_multiply(x: Tensor, inputs: int, outputs: int) -> bool:
    """Whether the loops take these rows on this machine."""
    return (
        IS_ARM
        and x.dtype == torch.float32
        and x.device.type == "cpu"
        and inputs % (2 * STEP) == 0
        and outputs >= OUTPUTS
        and not (torch.is_grad_enabled() and x.requires_grad)
        and openmp() is not None
    )


def multiply(
    kind: Kind, x: Tensor, weight: Tensor, scales: Tensor | None = None, minimums: Tensor | None = None
) -> Tensor:
    """x Wᵀ [..., O] of x [..., I]; scales [O] for int8, scales and minimums [O, groups] for int4, all contiguous."""
    x, outputs, inputs = x.contiguous(), weight.shape[0], x.shape[-1]
    out = x.new_empty(*x.shape[:-1], outputs)
    group = inputs if scales is None or scales.dim() == 1 else inputs // scales.shape[1]
    rows = x.numel() // inputs
    panels = x.new_empty(panels_for(rows) * PANEL * inputs)
    task = (
        x.data_ptr(),
        weight.data_ptr(),
        0 if scales is None else scales.data_ptr(),
        0 if minimums is None else minimums.data_ptr(),
        out.data_ptr(),
        panels.data_ptr(),
        rows,
        inputs,
        outputs,
        (group // 2).bit_length() - 1,
    )
    run([(program(kind)[1], task)])
    return out
