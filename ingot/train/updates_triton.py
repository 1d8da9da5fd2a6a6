"""Triton: the sampled entries of all parameters in one launch, where copying them one after the other takes a hundred.

Every parameter is a program. Its row of the table says where the parameter lies in memory, how far apart its runs begin, how many
entries are taken, and where they go (the sample of updates.py):

    out[start + e] = parameter[(e // RUN) · apart + e mod RUN]        e = 0 … taken − 1

tests/train/test_updates.py compares it with the views of updates.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _gather(table_P4, out_S, RUN: tl.constexpr, MOST: tl.constexpr):
    row = table_P4 + tl.program_id(0) * 4
    parameter = tl.load(row).to(tl.pointer_type(tl.float32))
    apart = tl.load(row + 1)
    taken = tl.load(row + 2)
    start = tl.load(row + 3)
    entry = tl.arange(0, MOST)
    inside = entry < taken
    value = tl.load(parameter + entry // RUN * apart + entry % RUN, mask=inside)
    tl.store(out_S + start + entry, value, mask=inside)


def make_table(parameters: Sequence[Tensor], steps: Sequence[tuple[int, int]]) -> Tensor:
    """The table for `gather`; `steps` are (apart, taken) of every parameter. They must be contiguous and in float32."""
    assert all(each.is_contiguous() and each.dtype == torch.float32 for each in parameters)
    rows, start = [], 0
    for parameter, (apart, taken) in zip(parameters, steps, strict=True):
        rows.append((parameter.data_ptr(), apart, taken, start))
        start += taken
    return torch.tensor(rows, dtype=torch.int64).to(parameters[0].device)


def gather(table_P4: Tensor, entries: int, *, run: int, most: int) -> Tensor:
    """The sample of all parameters, one after the other: `entries` in all, at most `most` (a power of two) of each."""
    out_S = torch.empty(entries, device=table_P4.device)
    with torch.cuda.device(out_S.device):
        _gather[(len(table_P4),)](table_P4, out_S, RUN=run, MOST=most, num_warps=4)
    return out_S
