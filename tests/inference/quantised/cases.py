"""Products with packed weights, and how far from exact arithmetic they may be."""

from __future__ import annotations

import torch
from torch import Tensor

from ingot.kernels.quantised.pack_weights import group_for, pack_4, pack_8
from ingot.kernels.quantised.packed_linear import Packed, unpack


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def packed_case(bits: int, rows: int, inputs: int, outputs: int, group: int = 128) -> tuple[Tensor, Packed]:
    """Rows of random numbers, and a random weight with an outlier in some rows, packed."""
    weight = normal(outputs, inputs, seed=outputs)
    weight[::3, 5] *= 20
    size = group_for(inputs, group)
    assert size is not None
    return normal(rows, inputs, seed=rows), pack_8(weight) if bits == 8 else pack_4(weight, size)


def check_product(found: Tensor, x: Tensor, packed: Packed) -> None:
    """Against x ŵᵀ in float64, within the error of a sum in float32 and of the result's own dtype.

    The sums are of x·q and x·u, whose absolute values may exceed those of x·ŵ: 16·scale bounds a weight's size in them.
    """
    exact = unpack(packed, torch.float64)
    size = exact.abs() if packed.minimums is None else unpack_sizes(packed)
    bound = x.double().abs() @ size.T
    expected = x.double() @ exact.T
    allowed = x.shape[-1] * 2.0**-24 * bound + torch.finfo(found.dtype).eps / 2 * expected.abs() * 1.01
    excess = ((found.double() - expected).abs() - allowed).max()
    assert excess <= 0, f"{float(excess):.2e} more than allowed"


def unpack_sizes(packed: Packed) -> Tensor:
    """s·u + |m| + 128·s: what 4 bits are added up from."""
    integers, scales, minimums = packed
    assert minimums is not None
    size = unpack(Packed(integers, scales, minimums.abs()), torch.float64)
    return size + 128 * scales.double().repeat_interleave(size.shape[1] // scales.shape[1], dim=1)
