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
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

ROW = 1024
WORD = 8  # bytes
GROUP = 2**26  # bytes that are summed at once: a multiple of a row's
FACTOR = 0x9E3779B97F4A7C15 - (1 << 64)  # G as the int64 of the same bits


def weights_checksum(model: nn.Module) -> int:
    """The checksum of a module's parameters and persistent buffers."""
    return state_checksum(model.state_dict())


def state_checksum(state: Mapping[str, Tensor]) -> int:
    """The checksum of named tensors, in the order of their names."""
    return fold_sums(tensor_sums(state))


def tensor_sums(state: Mapping[str, Tensor]) -> dict[str, int]:
    """c of every tensor; one transfer from the device for all of them."""
    names = sorted(state)
    pieces = [piece for name in names for piece in _pieces(name, state[name])]
    sums = dict.fromkeys(names, 0)
    found = torch.cat([_sums(group) for group in _groups(pieces)]).tolist() if pieces else []
    for piece, value in zip(pieces, found, strict=True):
        sums[piece.name] += value
    return sums


def fold_sums(sums: Mapping[str, int]) -> int:
    """One number of the sums of all tensors."""
    folded = 0
    for name, value in sorted(sums.items()):
        folded = (folded * 6364136223846793005 + zlib.crc32(name.encode()) + value) % (1 << 64)
    return folded


class TensorPiece(NamedTuple):
    """At most GROUP bytes of a tensor, from one of its rows on."""

    name: str
    data: Tensor
    row: int


def _pieces(name: str, tensor: Tensor) -> Iterator[TensorPiece]:
    data = tensor.detach().contiguous().view(-1).view(torch.uint8)
    for start in range(0, len(data), GROUP):
        yield TensorPiece(name, data[start : start + GROUP], start // (ROW * WORD))


def _groups(pieces: Sequence[TensorPiece]) -> Iterator[list[TensorPiece]]:
    """Neighbours on one device, of GROUP bytes together at most."""
    group, size = list[TensorPiece](), 0
    for piece in pieces:
        if group and (size + len(piece.data) > GROUP or piece.data.device != group[0].data.device):
            yield group
            group, size = [], 0
        group.append(piece)
        size += len(piece.data)
    if group:
        yield group


def _sums(pieces: Sequence[TensorPiece]) -> Tensor:
    """What each piece adds to c, as int64 on their device; integer sums and products wrap modulo 2^64.

    A model has hundreds of tensors, and launching every operation for each of them takes longer than the operations: their rows
    are put below each other, and what belongs to one is the difference of two running sums, which is exact modulo 2^64.
    """
    data = [piece.data for piece in pieces]
    counts = torch.tensor([-(-len(each) // (ROW * WORD)) for each in data])
    bytes_N = data[0].new_zeros(int(counts.sum()) * ROW * WORD)
    places = bytes_N.split((counts * ROW * WORD).tolist())
    torch._foreach_copy_([place[: len(each)] for place, each in zip(places, data, strict=True)], data)
    words_RC = bytes_N.view(torch.int64).view(-1, ROW)
    words_RC = words_RC ^ ((words_RC >> 32) & 0xFFFFFFFF)  # int64 shifts copy the sign: masked off
    columns_C = (torch.arange(ROW, device=words_RC.device) * FACTOR) | 1
    ends = counts.cumsum(0)
    shifts = torch.tensor([piece.row for piece in pieces]) - (ends - counts)  # to the row in its tensor
    rows_R = torch.arange(len(words_RC)) + shifts.repeat_interleave(counts)
    terms_R = (words_RC * columns_C).sum(dim=1) * (rows_R * 2 + 1).to(words_RC.device)
    running_R = pad(terms_R.cumsum(0), (1, 0))
    return running_R[ends.to(words_RC.device)] - running_R[(ends - counts).to(words_RC.device)]
