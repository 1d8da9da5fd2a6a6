"""The row order of fused weights that tensor parallelism divides, and conversion to and from the model's own order.

A fused weight such as [queries | keys | values] cannot simply be cut into N equal pieces: every rank needs its share of each
section. So a divided weight holds, rank after rank, the rank's share of the first section, of the second, …:

    model's order    q0 q1 q2 q3 k0 k1 v0 v1             what is saved, loaded, drawn at the start
    ranks' order     q0 q1 k0 v0 | q2 q3 k1 v1           what a DTensor with the placement Shard holds (two ranks)

It stays one parameter with its own name and shape, so that gradients, optimizers and FSDP need to know nothing; gradients and
moments are in the order of their parameter. Only code that must know *which* row is which (checkpoints, initial values,
updates that are made head by head) goes through `in_model_order` and `in_ranks_order`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

ORDERS = "row_orders"  # the attribute of a module: parameter name -> ShardOrder


@dataclass(frozen=True)
class ShardOrder:
    """Index i of the ranks' order along `axis` holds row `rows[i]` of the model's order."""

    axis: int
    rows: Tensor

    @classmethod
    def of_sections(cls, axis: int, sections: Sequence[int], ranks: int) -> ShardOrder:
        """Every section cut into `ranks` equal pieces, which their sizes must allow."""
        pieces = [section.chunk(ranks) for section in torch.arange(sum(sections)).split(list(sections))]
        return cls(axis, torch.cat([section[rank] for rank in range(ranks) for section in pieces]))


def local(parameter: Tensor) -> Tensor:
    """This rank's part of a divided parameter, any other parameter unchanged; gradients pass through."""
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


def orders(model: nn.Module) -> dict[str, ShardOrder]:
    """The parameters of a model that are in the ranks' order, by name."""
    return {
        f"{path}.{name}" if path else name: order
        for path, module in model.named_modules()
        for name, order in getattr(module, ORDERS, {}).items()
    }


def in_model_order(tensor: Tensor, order: ShardOrder | None) -> Tensor:
    """The tensor with its rows in the model's order, placed over the ranks as before; a copy unless there is no order."""
    return tensor if order is None else _moved(tensor, order.axis, order.rows.argsort())


def in_ranks_order(tensor: Tensor, order: ShardOrder | None) -> Tensor:
    """The tensor with its rows in the ranks' order, from the model's."""
    return tensor if order is None else _moved(tensor, order.axis, order.rows)


def whole(tensor: Tensor, order: ShardOrder | None = None) -> Tensor:
    """All of a parameter, gradient or moment in the model's order, on every rank."""
    full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return in_model_order(full, order)


def _moved(tensor: Tensor, axis: int, rows: Tensor) -> Tensor:
    """Rows permuted. A distributed tensor is gathered for it, one at a time, and each rank keeps its part."""
    if not isinstance(tensor, DTensor):
        return tensor.index_select(axis, rows.to(tensor.device))
    full = tensor.full_tensor()
    full = full.index_select(axis, rows.to(full.device))
    sizes, offsets = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    own = full[tuple(slice(offset, offset + size) for offset, size in zip(offsets, sizes, strict=True))]
    return DTensor.from_local(
        own.contiguous(),
        tensor.device_mesh,
        tensor.placements,
        run_check=False,
        shape=tensor.shape,
        stride=tensor.stride(),
    )
