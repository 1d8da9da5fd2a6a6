"""Maps the rows of a rank's shard to rows of the whole tensor, where tensor parallelism reorders them (order.py).

    ranks' order     q0 q1 k0 v0 | q2 q3 k1 v1           the second rank's shard: rows 4 to 7
    its ranges       q2 q3 -> 2..3,  k1 -> 5,  v1 -> 7   of the model's order, in which checkpoints are

A shard is written and read one range at a time, so that a checkpoint is the same whatever layout made it, and ranks need not
communicate.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from ingot.model.order import ShardOrder


@dataclass(frozen=True)
class RowRange:
    """Indices `start` to `start + length` along `axis` of the shard, and where they lie in the whole tensor."""

    axis: int
    start: int
    length: int
    chunk: ChunkStorageMetadata

    def of(self, shard: Tensor) -> Tensor:
        """The range's values."""
        return shard.narrow(self.axis, self.start, self.length)


def row_ranges(tensor: DTensor, order: ShardOrder) -> list[RowRange]:
    """The ranges of rows in this rank's shard of a tensor in the ranks' order; none if the shard is empty."""
    sizes, offsets = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    if 0 in sizes:
        return []
    axis, first = order.axis, offsets[order.axis]
    rows = order.rows[first : first + sizes[axis]]
    cuts = [0, *((rows.diff() != 1).nonzero().flatten() + 1).tolist(), len(rows)]
    found = []
    for start, end in pairwise(cuts):
        corner, size = list(offsets), list(sizes)
        corner[axis], size[axis] = int(rows[start]), end - start
        found.append(RowRange(axis, start, end - start, ChunkStorageMetadata(torch.Size(corner), torch.Size(size))))
    return found
