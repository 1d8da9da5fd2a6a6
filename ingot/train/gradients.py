"""Norms of gradients, whole or sharded, and the factor that clips them.

    ‖g‖² = Σ over shards ‖g_shard‖²:   local squares are added over exactly those mesh axes along which a gradient is sharded;
                                        along the others every rank holds the same values.

Everything is computed for all parameters at once and stays on the device. The norms by parameter are returned with the total:
when a step goes wrong they say where.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor, distributed
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from ingot.train.parallel.layout import Layout

EPSILON = 1e-6  # torch's own clipping adds it too


def gradient_norms(gradients: Sequence[Tensor]) -> Tensor:
    """The norm of each whole gradient [P], the same on all ranks that hold a part of it."""
    local = [each.to_local() if isinstance(each, DTensor) else each for each in gradients]
    squares = list(torch.stack(torch._foreach_norm(local)).square().unbind())
    sharded: defaultdict[tuple[DeviceMesh, int], list[int]] = defaultdict(list)
    for index, each in enumerate(gradients):
        if isinstance(each, DTensor):
            for axis, placement in enumerate(each.placements):
                if not placement.is_replicate():
                    sharded[each.device_mesh, axis].append(index)
    for (mesh, axis), indices in sharded.items():
        part = torch.stack([squares[index] for index in indices])  # indexing with numbers would wait for the device
        distributed.all_reduce(part, group=mesh.get_group(axis))
        for index, square in zip(indices, part.unbind(), strict=True):
            squares[index] = square
    return torch.stack(squares).sqrt()


def total_norm(norms_P: Tensor, layout: Layout | None, counted: Sequence[bool] | None = None) -> Tensor:
    """The norm of all gradients together. The stages of a pipeline hold different ones; of those that two of them hold,
    `counted` says which count here."""
    if counted is not None and not all(counted):
        own = [norm for norm, counts in zip(norms_P.unbind(), counted, strict=True) if counts]
        norms_P = torch.stack(own) if own else norms_P.new_zeros(1)
    square = norms_P.square().sum()
    return (square if layout is None else layout.sum_over(square, "pipeline")).sqrt()


def clip_factor(norm: Tensor, limit: float | Tensor) -> Tensor:
    """The factor on the gradients that makes their norm at most `limit`."""
    return (limit / (norm + EPSILON)).clamp(max=1.0)
