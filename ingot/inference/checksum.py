"""An exact checksum of all weights, cheap enough for every sync of learner and sampler.

The bytes of a tensor are read as 64-bit words b_ij (row i, column j of 1024; the last row is filled up with zeros), and

    c = Σ_ij (b_ij xor (b_ij >> 32)) · (2i + 1) · (j·G | 1)      modulo 2^64,   G = 0x9E3779B97F4A7C15.

A single changed bit changes its term by an odd number times 2^k with k < 32, whatever bit it is (the shift brings the
high half down), and both factors are odd: c always changes. Because k < 32, values that were swapped are found too
unless their factors agree in 33 bits. Names and order of the tensors are folded in. It guards against mistakes (a weight
that was not copied, two tensors that were swapped), not against an adversary.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

ROW = 1024
WORD = 8  # bytes
FACTOR = 0x9E3779B97F4A7C15 - (1 << 64)  # G as the int64 of the same bits


def weights_checksum(model: nn.Module) -> int:
    """The checksum of a module's parameters and persistent buffers."""
    return state_checksum(model.state_dict())


def state_checksum(state: Mapping[str, Tensor]) -> int:
    """The checksum of named tensors, in the order of their names; one transfer from the device for all of them."""
    names = sorted(state)
    sums = torch.stack([_tensor_sum(state[name]) for name in names]).tolist() if names else []
    folded = 0
    for name, value in zip(names, sums, strict=True):
        folded = (folded * 6364136223846793005 + zlib.crc32(name.encode()) + value) % (1 << 64)
    return folded


def _tensor_sum(tensor: Tensor) -> Tensor:
    """c of one tensor as an int64 scalar on its device; integer sums and products wrap modulo 2^64."""
    data = tensor.detach().contiguous().view(-1).view(torch.uint8)
    missing = -len(data) % (ROW * WORD)
    if missing:
        data = pad(data, (0, missing))
    elif data.storage_offset() % WORD:
        data = data.clone()  # words must begin at a multiple of their size
    words = data.view(torch.int64).view(-1, ROW)
    words = words ^ ((words >> 32) & 0xFFFFFFFF)  # int64 shifts copy the sign: masked off
    columns = (torch.arange(ROW, device=tensor.device) * FACTOR) | 1
    rows = torch.arange(len(words), device=tensor.device) * 2 + 1
    return ((words * columns).sum(dim=1) * rows).sum()
