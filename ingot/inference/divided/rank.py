"""One rank of a divided engine: its part of the model, cut as training cuts it (train/parallel/tensor.py), as plain tensors.

Weights come and go whole, one tensor at a time, so that no device ever holds more than its part and one whole tensor:

    load      rank 0 sends a tensor to all; each keeps its rows or columns; all send back what they have kept
    checksum  of the tensors that rank 0 has put together again: that of the whole model, as one device has it

So a part that was not copied, or was cut at the wrong place, is found on whatever rank it lies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from ingot.inference.checksum import fold_sums, tensor_sums
from ingot.inference.memory import cache_budget_bytes
from ingot.model.config import ModelConfig
from ingot.model.order import ShardOrder, in_model_order, in_ranks_order, orders
from ingot.model.transformer import Transformer
from ingot.train.parallel.tensor import divide_over
from ingot.train.parallel.ties import all_gather
from ingot.workspace.errors import CheckFailed

Model = TypeVar("Model", bound=Transformer)


@dataclass(frozen=True)
class Cut:
    """How a tensor of the model lies on the ranks: along `axis`, and in which order of its rows. None: whole on each."""

    axis: int | None = None
    order: ShardOrder | None = None

    def whole_shape(self, part: Tensor, ranks: int) -> tuple[int, ...]:
        """The shape of all parts together."""
        return tuple(size * ranks if axis == self.axis else size for axis, size in enumerate(part.shape))

    def part(self, whole: Tensor, rank: int, ranks: int) -> Tensor:
        """What a rank has of the whole tensor."""
        return whole if self.axis is None else in_ranks_order(whole, self.order).chunk(ranks, self.axis)[rank]

    def held(self, part: Tensor, group: distributed.ProcessGroup) -> list[Tensor]:
        """The whole tensor out of all ranks' parts; of one that is not cut, each rank's copy."""
        parts = list(all_gather(part, group).unbind())
        return parts if self.axis is None else [in_model_order(torch.cat(parts, dim=self.axis), self.order)]


def build_part(
    kind: type[Model], config: ModelConfig, dtype: torch.dtype, device: torch.device
) -> tuple[Model, dict[str, Cut]]:
    """This rank's part of a model without weights (zeros), and how its tensors are cut. All ranks call it."""
    with torch.device("meta"):
        model = kind(config).to(dtype).eval().requires_grad_(requires_grad=False)
    divide_over(init_device_mesh(device.type, (distributed.get_world_size(),), mesh_dim_names=("tensor",)), model)
    row_orders, cuts = orders(model), dict.fromkeys(model.state_dict(), Cut())
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if isinstance(parameter, DTensor):
                (placement,) = parameter.placements
                assert isinstance(placement, Shard)
                whole_name = f"{path}.{name}" if path else name
                cuts[whole_name] = Cut(placement.dim, row_orders.get(whole_name))
                module.register_parameter(name, nn.Parameter(parameter.to_local(), requires_grad=False))
    model.to_empty(device=device)
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.zero_()
    return model, cuts


@torch.no_grad()
def load_part(model: Transformer, cuts: Mapping[str, Cut], state: Mapping[str, Tensor] | None) -> int:
    """Take this rank's part of whole weights, which rank 0 has in `state`. There: the checksum of what all ranks then hold."""
    group, sums, wrong = distributed.group.WORLD, dict[str, int](), list[str]()
    assert group is not None
    rank, ranks = group.rank(), group.size()
    for name, own in model.state_dict().items():
        cut = cuts[name]
        whole = torch.empty(cut.whole_shape(own, ranks), dtype=own.dtype, device=own.device)
        if state is not None:
            whole.copy_(state[name])
        distributed.broadcast(whole, 0)
        own.copy_(cut.part(whole, rank, ranks))
        held = cut.held(own, group)
        if state is not None:
            sums[name], *others = (tensor_sums({name: each})[name] for each in (whole, *held))
            wrong += [name] if set(others) != {sums[name]} else []
    if wrong:  # not before the end, which the others go to
        raise CheckFailed(f"{wrong[0]} did not arrive as it was sent", place="engine.update")
    return fold_sums(sums)


def smallest_cache_budget(device: torch.device) -> int:
    """Bytes that every rank has for caches."""
    budget = torch.tensor(cache_budget_bytes(device), device=device)
    distributed.all_reduce(budget, distributed.ReduceOp.MIN)
    return int(budget)
