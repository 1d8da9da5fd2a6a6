"""NF4 with double quantisation (QLoRA, arXiv 2305.14314): weights in 4.13 bits.

    w ≈ c · level[code]          c = max|w| of 64 weights in a row;   level: 16 quantiles of a normal distribution (appendix E)
    c ≈ m + d · step[scale]      m = mean of all c,   d = max|c − m| of 256 of them;   step: 256 numbers, 8 bits

The steps are those of bitsandbytes' "dynamic" 8 bits (arXiv 1511.04561): 2^i equal parts of each decade 10^(i−6)·[0.1, 1],
i = 0 … 6, of either sign, and 0 and 1. So small differences keep their relative precision. Bits a weight: 4 + 8/64 + 32/(64·256).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

BLOCK, SCALES_BLOCK = 64, 256
DECADES = 7
LEVELS = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)


class Nf4(NamedTuple):
    """Two codes a byte (the first in the high half) [N/2], 8-bit scales [N/64], float32 maxima [N/(64·256)] and mean []."""

    codes: Tensor
    scales: Tensor
    scale_maxima: Tensor
    scale_mean: Tensor


def pack_nf4(weight: Tensor) -> Nf4:
    """A weight whose size is a multiple of 64, row by row."""
    blocks_NB = weight.float().reshape(-1, BLOCK)
    largest_N = blocks_NB.abs().amax(dim=1)
    codes = _nearest(blocks_NB / _not_zero(largest_N)[:, None], LEVELS).flatten()
    mean = largest_N.mean()
    missing = -len(largest_N) % SCALES_BLOCK
    groups_GS = pad(largest_N - mean, (0, missing)).view(-1, SCALES_BLOCK)
    maxima_G = groups_GS.abs().amax(dim=1)
    scales_N = _nearest(groups_GS / _not_zero(maxima_G)[:, None], _steps()).flatten()[: len(largest_N)]
    return Nf4(codes[0::2] << 4 | codes[1::2], scales_N, maxima_G, mean)


def unpack_nf4(packed: Nf4, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """ŵ of this shape."""
    device = packed.codes.device
    codes = torch.stack((packed.codes >> 4, packed.codes & 15), dim=1).flatten().int()
    levels, steps = (torch.tensor(each, device=device) for each in (LEVELS, _steps()))
    maxima_N = packed.scale_maxima.repeat_interleave(SCALES_BLOCK)[: len(packed.scales)]
    largest_N = packed.scale_mean + maxima_N * steps[packed.scales.int()]
    return (levels[codes].view(-1, BLOCK) * largest_N[:, None]).view(*shape).to(dtype)


@cache
def _steps() -> tuple[float, ...]:
    positive = []
    for decade in range(DECADES):
        edges = torch.linspace(0.1, 1.0, 2**decade + 1)
        positive += ((edges[:-1] + edges[1:]) / 2 * 10.0 ** (decade - DECADES + 1)).tolist()
    return tuple(sorted([*positive, *(-value for value in positive), 0.0, 1.0]))


def _nearest(values: Tensor, levels: Sequence[float]) -> Tensor:
    """The index of the level that is nearest to each value."""
    sorted_levels = torch.tensor(levels, device=values.device)
    return torch.bucketize(values, (sorted_levels[:-1] + sorted_levels[1:]) / 2).to(torch.uint8)


def _not_zero(scales: Tensor) -> Tensor:
    """Blocks that are all zero have scale 0."""
    return scales.clamp_min(torch.finfo(torch.float32).tiny)
