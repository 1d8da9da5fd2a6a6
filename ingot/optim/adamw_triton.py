"""Triton: AdamW's update of many parameters in one launch and one pass over memory: p, g, m and v read once, p, m and v written.

    m ← β₁ m + (1 − β₁) g       v ← β₂ v + (1 − β₂) g²       p ← p (1 − lr λ) − lr m̂ / (√v̂ + ε)

Parameters are cut into blocks of entries, each a program. `owner` names a block's parameter, and that one's row of the table says
where its tensors lie, how many entries it has and which block is its first.

The formula, `grad_scale` and `found_inf` are those of torch's fused kernel, which takes 1.35 times as long for large parameters;
tests/optim/test_adamw_cuda.py compares the two. Differences from 1 are taken in float64, on the host or here: those of float32
numbers would have lost digits.

Shapes: P parameters, B blocks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from ingot.optim.adamw import TOGETHER

BLOCK, WARPS = 1024, 4  # entries of a block, and what works on one
ALIGNED = 16  # bytes: tensors that begin at multiples of it, and whose size is one of TOGETHER, are read in such pieces
COLUMNS = tl.constexpr(7)  # of the table: parameter, gradient, first moment, second, step, entries, first block


@triton.jit
def _pointer(row, COLUMN: tl.constexpr, IS_ALIGNED: tl.constexpr):
    place = tl.load(row + COLUMN).to(tl.pointer_type(tl.float32))
    if IS_ALIGNED:
        place = tl.multiple_of(place, 16)
    return place


@triton.jit
def _update(
    table_P7,
    owner_B,
    grad_scale,
    found_inf,
    rate,
    keep,
    beta1,
    beta2,
    rest1,
    rest2,
    log_beta1,
    log_beta2,
    epsilon,
    HAS_SCALE: tl.constexpr,
    HAS_FOUND: tl.constexpr,
    IS_ALIGNED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    block = tl.program_id(0)
    row = table_P7 + tl.load(owner_B + block) * COLUMNS
    count = tl.load(row + 5)
    at = (block - tl.load(row + 6)) * BLOCK + tl.arange(0, BLOCK)
    if HAS_FOUND:
        count = tl.where(tl.load(found_inf) == 0, count, 0)
    if IS_ALIGNED:
        count = tl.multiple_of(count, 4)
    here = at < count
    parameter, gradient = _pointer(row, 0, IS_ALIGNED) + at, _pointer(row, 1, IS_ALIGNED) + at
    first, second = _pointer(row, 2, IS_ALIGNED) + at, _pointer(row, 3, IS_ALIGNED) + at
    g = tl.load(gradient, mask=here, other=0.0)
    m = tl.load(first, mask=here, other=0.0)
    v = tl.load(second, mask=here, other=0.0)
    p = tl.load(parameter, mask=here, other=0.0)
    if HAS_SCALE:
        g = tl.div_rn(g, tl.load(grad_scale).to(tl.float32))
    steps = tl.load(_pointer(row, 4, False)).to(tl.float64)
    from_first = (rate / (1.0 - tl.exp(steps * log_beta1))).to(tl.float32)
    from_second = (1.0 / tl.sqrt(1.0 - tl.exp(steps * log_beta2))).to(tl.float32)
    m = tl.where(rest1 < 0.5, m + rest1 * (g - m), g - beta1 * (g - m))  # from the nearer end, as torch's lerp
    v = beta2 * v + rest2 * (g * g)
    p = p * keep - tl.div_rn(from_first * m, from_second * tl.sqrt_rn(v) + epsilon)
    tl.store(first, m, mask=here)
    tl.store(second, v, mask=here)
    tl.store(parameter, p, mask=here)


def adamw_triton(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    firsts: Sequence[Tensor],
    seconds: Sequence[Tensor],
    steps: Sequence[Tensor],
    *,
    rate: float,
    decay: float,
    betas: tuple[float, float],
    epsilon: float,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:
    """Update contiguous float32 tensors in place; `steps` count this step already. With `found_inf` of 1 nothing is written."""
    device, counts = parameters[0].device, tuple(each.numel() for each in parameters)
    owner_B, begins = _blocks(counts, device)
    places = [
        [each.data_ptr() for each in row] for row in zip(parameters, gradients, firsts, seconds, steps, strict=True)
    ]
    rows = [(*place, count, begin) for place, count, begin in zip(places, counts, begins, strict=True)]
    is_aligned = all(address % ALIGNED == 0 for place in places for address in place[:4])
    is_aligned = is_aligned and all(count % TOGETHER == 0 for count in counts)
    table_P7 = torch.tensor(rows, dtype=torch.int64)
    if device.type == "cuda":  # else Triton's interpreter
        table_P7 = table_P7.pin_memory().to(device, non_blocking=True)
    with torch.cuda.device_of(owner_B):
        _update[(len(owner_B),)](
            table_P7,
            owner_B,
            steps[0] if grad_scale is None else grad_scale,
            steps[0] if found_inf is None else found_inf,
            rate,
            1.0 - rate * decay,
            *betas,
            *(1.0 - beta for beta in betas),
            *(math.log(beta) if beta else -math.inf for beta in betas),
            epsilon,
            HAS_SCALE=grad_scale is not None,
            HAS_FOUND=found_inf is not None,
            IS_ALIGNED=is_aligned,
            BLOCK=BLOCK,
            num_warps=WARPS,
        )


@lru_cache(maxsize=16)
def _blocks(counts: tuple[int, ...], device: torch.device) -> tuple[Tensor, list[int]]:
    """The parameter of every block, and every parameter's first block."""
    sizes = [triton.cdiv(count, BLOCK) for count in counts]
    owner_B = torch.arange(len(sizes), dtype=torch.int32).repeat_interleave(torch.tensor(sizes))
    return owner_B.to(device), [0, *itertools.accumulate(sizes)][: len(sizes)]
