"""The layout of a run's processes: one DeviceMesh of five axes, and the groups over which a step's parts communicate.

    axis        ranks along it hold                                       summed over it
    pipeline    different layers, the same rows                           –
    replicate   a copy of everything, different rows                      gradients, counts, metrics
    shard       a shard of everything, different rows                     gradients (reduce-scatter), counts, metrics
    context     a shard of everything, other tokens of the same rows      the same
    tensor      different heads and channels, the same tokens             partial outputs, inside the layers

`data` = replicate × shard are the ranks that read different rows, `loss` = data × context those whose sums make a step's loss.
Experts are divided over `expert` consecutive ranks of shard × context; over the rest of these ranks they are sharded by FSDP.
A single process has no layout (None) and communicates with no other.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, distributed
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from ingot.train.parallel.config import MeshConfig
from ingot.workspace.errors import RecipeError

Name = TypeVar("Name", bound=Hashable)
AXES = ("pipeline", "replicate", "shard", "context", "tensor")


@dataclass(frozen=True)
class Layout:
    """The mesh, and this process's coordinates in it."""

    config: MeshConfig
    mesh: DeviceMesh

    def size(self, *axes: str) -> int:
        """The number of ranks along these axes."""
        sizes = dict(zip(AXES, self.mesh.shape, strict=True))
        product = 1
        for axis in axes:
            product *= sizes[axis]
        return product

    def rank(self, *axes: str) -> int:
        """This process's number along these axes, the last one counting fastest."""
        number = 0
        for axis in axes:
            number = number * self.size(axis) + self.mesh[axis].get_local_rank()
        return number

    @property
    def data_rank(self) -> int:
        """Which share of a step's rows this process reads."""
        return self.rank("replicate", "shard")

    @property
    def data_world(self) -> int:
        """Into how many shares a step's rows are divided."""
        return self.size("replicate", "shard")

    @property
    def first(self) -> bool:
        """Whether this is the main rank, which writes metrics and progress."""
        return distributed.get_rank() == 0

    def sum_over(self, tensor: Tensor, *axes: str) -> Tensor:
        """The sum of a tensor over the ranks along these axes, in place."""
        for axis in axes:
            if self.size(axis) > 1:
                distributed.all_reduce(tensor, group=self.mesh[axis].get_group())
        return tensor

    def max_over(self, tensor: Tensor, *axes: str) -> Tensor:
        """The largest values of a tensor over the ranks along these axes, in place."""
        for axis in axes:
            if self.size(axis) > 1:
                distributed.all_reduce(tensor, distributed.ReduceOp.MAX, group=self.mesh[axis].get_group())
        return tensor

    def union(self, names: Iterable[Name], axis: str) -> list[Name]:
        """All names (or other values) that the ranks along an axis have, in the same order on each; waits for them."""
        found: list[Any] = [list(names)]
        if self.size(axis) > 1:
            found = [None] * self.size(axis)
            distributed.all_gather_object(found, list(names), group=self.mesh[axis].get_group())
        return list(dict.fromkeys(name for each in found for name in each))

    def any(self, flag: bool, device: torch.device) -> Tensor:
        """1 on every rank if the flag of any is set, else 0; stays on the device."""
        found = torch.full((), float(flag), device=device)
        distributed.all_reduce(found, distributed.ReduceOp.MAX)
        return found

    def sum_over_loss(self, tensor: Tensor) -> Tensor:
        """The sum over all ranks whose tokens are different ones: data × context."""
        return self.sum_over(tensor, "replicate", "shard", "context")


def world_size() -> int:
    """The processes of this run; 1 outside torchrun."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def make_layout(config: MeshConfig, device: torch.device) -> Layout | None:
    """The layout of this run's processes, or None in a single one. The process group is there already (launch.py)."""
    world = world_size()
    fixed = config.replicate * config.tensor * config.context * config.pipeline
    shard = config.shard or max(1, world // fixed)
    if fixed * shard != world:
        raise RecipeError(
            f"the mesh has {fixed * shard} ranks (replicate {config.replicate} × shard {shard} × tensor {config.tensor} × "
            f"context {config.context} × pipeline {config.pipeline}), the run has {world} processes",
            place="mesh",
            fix=f"start it with torchrun --nproc-per-node {fixed * shard}, or change the mesh",
        )
    if (shard * config.context) % config.expert:
        raise RecipeError(
            f"expert ({config.expert}) does not divide shard × context ({shard * config.context})",
            place="mesh",
            fix="choose a divisor of it",
        )
    if world == 1:
        return None
    shape = (config.pipeline, config.replicate, shard, config.context, config.tensor)
    return Layout(config, init_device_mesh(device.type, shape, mesh_dim_names=AXES))
