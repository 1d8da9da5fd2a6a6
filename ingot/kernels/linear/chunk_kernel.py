"""What the Triton kernels over chunks share: tiles, where a chunk lies, and sums of decays.

    totals     G, the sum of decays from a chunk's beginning, in base 2; or sums from each token to its end, for gradients

Sequences and chunks: chunks.py. Shapes: T tokens of the flattened batch, H heads.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from ingot.kernels.launch import on_device_of, power_of_two
from ingot.kernels.linear.chunks import CHUNK

TO_BASE_2 = 1.4426950408889634  # 1 / ln 2


@dataclass(frozen=True)
class Tile:
    """The share of a program: channels of keys and of values at a time; warps and stages of its pipeline."""

    keys: int
    values: int
    warps: int
    stages: int

    def fit(self, key_width: int, value_width: int) -> Tile:
        """Not wider than what there is."""
        keys, values = min(self.keys, power_of_two(key_width)), min(self.values, power_of_two(value_width))
        return Tile(keys, values, self.warps, self.stages)


@triton.jit
def find_chunk(starts, chunks, number):
    """The first token of a chunk's sequence, the sequence's length, and the chunk's first token in it."""
    sequence = tl.load(chunks + number * 2).to(tl.int64)
    begin = tl.load(starts + sequence).to(tl.int64)
    length = tl.load(starts + sequence + 1).to(tl.int64) - begin
    return begin, length, tl.load(chunks + number * 2 + 1).to(tl.int64)


@triton.jit
def _totals(
    decays, out, starts, chunks, factor, H: tl.constexpr, C: tl.constexpr, BLOCK_H: tl.constexpr, REVERSED: tl.constexpr
):
    """Sums over a chunk up to each token, or from each token on."""
    begin, length, place = find_chunk(starts, chunks, tl.program_id(0))
    head = tl.program_id(1) * BLOCK_H + tl.arange(0, BLOCK_H)
    token = place * C + tl.arange(0, C)
    inside = (token < length)[:, None] & (head < H)[None, :]
    at = (begin + token)[:, None] * H + head[None, :]
    x = tl.load(decays + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, tl.cumsum(x, axis=0, reverse=REVERSED) * factor, mask=inside)


def totals(decay_TH: Tensor, starts: Tensor, chunks: Tensor, *, backwards: bool = False) -> Tensor:
    """G [T, H] in base 2 from decays; with `backwards` the sums from each token to its chunk's end, as they are."""
    out = torch.empty_like(decay_TH, dtype=torch.float32)
    heads = decay_TH.shape[1]
    block = min(power_of_two(heads), 32)
    grid = (len(chunks), triton.cdiv(heads, block))
    factor = 1.0 if backwards else TO_BASE_2
    with on_device_of(out):
        _totals[grid](decay_TH, out, starts, chunks, factor, H=heads, C=CHUNK, BLOCK_H=block, REVERSED=backwards)
    return out
