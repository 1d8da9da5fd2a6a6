"""Triton: the checksum of checksum.py in one pass over a tensor; PyTorch's way reads and writes it several times.

Sums of integers modulo 2^64 are the same in any order, so the programs' parts may be added in whatever order they come.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024  # words: a row of the formula
ROWS = 8  # of one program


@triton.jit
def _kernel(words, out, count, FACTOR: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * ROWS
    column = tl.arange(0, BLOCK).to(tl.int64)
    total = tl.zeros([BLOCK], dtype=tl.int64)
    for number in range(ROWS):
        row = first + number
        place = row * BLOCK + column
        word = tl.load(words + place, mask=place < count, other=0)
        word = word ^ ((word >> 32) & 0xFFFFFFFF)
        total += word * (2 * row + 1)
    tl.atomic_add(out, tl.sum(total * ((column * FACTOR) | 1), 0))


def tensor_sum(words: Tensor, factor: int) -> Tensor:
    """c of a tensor of int64 words, as a scalar on its device."""
    out = torch.zeros((), dtype=torch.int64, device=words.device)
    with torch.cuda.device_of(words):
        _kernel[(triton.cdiv(words.numel(), BLOCK * ROWS),)](
            words, out, words.numel(), FACTOR=factor, BLOCK=BLOCK, ROWS=ROWS, num_warps=4
        )
    return out
