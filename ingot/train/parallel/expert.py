"""Expert parallelism: the routed experts of a layer are divided over ranks; tokens are sent to their experts and back.

    sort the choices by expert → send each rank the rows of its experts → grouped products → send back → weigh and add

(GShard, arXiv 2006.16668; dropless as in MegaBlocks, arXiv 2211.15841.) Every rank holds the same number of consecutive
experts, so that rows sorted by expert are sorted by rank too: the pieces for the ranks lie one after the other, of whatever
length, also none. They arrive sorted by sender and expert, and are sorted by expert alone for the products. Every sort is
stable: equal inputs give equal bits. How much is sent is known only on the device, so a layer waits for it once.

The P ranks are consecutive ones of shard × context; over the others of these (and over copies) the rank's own experts are sharded
by FSDP. A rank's expert weights see the tokens of all P ranks, so that summing their gradients over the *other* ranks counts each
token once.

Shapes: R rows of this rank, S rows that arrived, P ranks, E experts of a rank, D width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from ingot.model.feed_forward.experts import Experts, gather
from ingot.model.feed_forward.mixture import MixtureOfExperts
from ingot.model.order import local
from ingot.model.transformer import Transformer
from ingot.train.parallel.divided import DividedExperts
from ingot.train.parallel.layout import Layout

EXPERT_AXES = ("pipeline", "replicate", "expert_shard", "expert", "tensor")


def expert_mesh(layout: Layout) -> DeviceMesh:
    """The same ranks with shard × context cut into [expert_shard, expert]."""
    experts = layout.config.expert
    rest = layout.size("shard", "context") // experts
    shape = (layout.size("pipeline"), layout.size("replicate"), rest, experts, layout.size("tensor"))
    return init_device_mesh(layout.mesh.device_type, shape, mesh_dim_names=EXPERT_AXES)


def apply_expert_parallel(model: Transformer, layout: Layout) -> None:
    """Replace the routed experts of every layer by this rank's share of them; names of parameters stay."""
    mesh = expert_mesh(layout)
    for module in model.modules():
        if isinstance(module, MixtureOfExperts):
            ExpertParallel.take_over(module.experts, mesh)


class ExpertParallel(Experts):
    """This rank's experts. Parameters are DTensors, cut along their first axis over the `expert` axis of the mesh."""

    ranks: int
    expert_group: distributed.ProcessGroup
    shard_mesh: DeviceMesh  # over which FSDP shards them: [replicate,] expert_shard

    @classmethod
    def take_over(cls, experts: Experts, mesh: DeviceMesh) -> None:
        """Change the class of `experts` to this one, in place, so that references to the module stay valid."""
        experts.__class__ = DividedExpertParallel if isinstance(experts, DividedExperts) else cls
        assert isinstance(experts, cls)
        experts.backend = "grouped"  # only `grouped` has sorted rows
        experts.ranks, experts.expert_group = mesh["expert"].size(), mesh["expert"].get_group()
        copies = mesh["replicate"].size() > 1
        experts.shard_mesh = mesh["replicate", "expert_shard"] if copies else mesh["expert_shard"]
        for name, parameter in list(experts.named_parameters()):
            experts.register_parameter(name, divide(parameter, mesh))
        # how much is sent differs from pass to pass: compiled, there would be new code for each
        experts._sorted = torch.compiler.disable(experts._sorted)  # type: ignore[method-assign]

    def _sorted(self, rows_RD: Tensor, counts_E: Tensor, expert_R: Tensor) -> Tensor:
        sent_PE = counts_E.unflatten(0, (self.ranks, -1))
        got_PE = torch.empty_like(sent_PE)
        distributed.all_to_all_single(got_PE, sent_PE, group=self.expert_group)
        send_counts, receive_counts = torch.stack((sent_PE.sum(1), got_PE.sum(1))).tolist()
        arrived_SD = exchange(rows_RD, send_counts, receive_counts, self.expert_group)
        experts_PE = torch.arange(got_PE.shape[1], device=rows_RD.device).expand_as(got_PE)
        expert_S = experts_PE.flatten().repeat_interleave(got_PE.flatten(), output_size=sum(receive_counts))
        order_S = expert_S.argsort(stable=True)
        place_S = torch.empty_like(order_S)
        place_S.scatter_(0, order_S, torch.arange(len(order_S), device=rows_RD.device))
        out_SD = super()._sorted(gather(arrived_SD, order_S, place_S), got_PE.sum(0), expert_S[order_S])
        return exchange(gather(out_SD, place_S, order_S), receive_counts, send_counts, self.expert_group)


class DividedExpertParallel(ExpertParallel, DividedExperts):
    """The same where tensor parallelism has cut the experts' inner channels: every tensor rank exchanges its own share."""


def divide(parameter: nn.Parameter, mesh: DeviceMesh) -> nn.Parameter:
    """This rank's experts of a stack, as a DTensor of the whole; it may be cut over `tensor` already."""
    cut = list(parameter.placements) if isinstance(parameter, DTensor) else []
    across = mesh["expert", "tensor"] if cut else mesh["expert"]
    mine = local(parameter.detach()).chunk(mesh["expert"].size())[mesh["expert"].get_local_rank()]
    whole = DTensor.from_local(mine.clone(), across, [Shard(0), *cut], run_check=False)
    return nn.Parameter(whole, parameter.requires_grad)


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, rows: Tensor, send_counts: list[int], receive_counts: list[int], group: Any) -> Tensor:
        context.splits = send_counts, receive_counts, group
        received = rows.new_empty(sum(receive_counts), *rows.shape[1:])
        distributed.all_to_all_single(received, rows.contiguous(), receive_counts, send_counts, group=group)
        return received

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        send_counts, receive_counts, group = context.splits
        return exchange(gradient, receive_counts, send_counts, group), None, None, None


def exchange(rows: Tensor, send_counts: list[int], receive_counts: list[int], group: Any) -> Tensor:
    """Send `send_counts[p]` rows to rank p, receive `receive_counts[p]` from it, in the order of ranks; gradients go back."""
    return _Exchange.apply(rows, send_counts, receive_counts, group)  # type: ignore[no-untyped-call]
