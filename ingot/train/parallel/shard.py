"""Sharded data parallelism (FSDP2; ZeRO-3, arXiv 1910.02054; FSDP, arXiv 2304.11277), also with several copies (HSDP).

    forward, backward of a block     all-gather its weights, use them, free them again
    after its backward               reduce-scatter its gradients: each rank keeps the sum of its shard; all-reduce it over copies
    optimizer                        every rank updates its shard

Weights, gradients and optimizer state are divided by shard × context. Masters and sums of gradients are float32, weights are
gathered in the dtype of the products. Gradients are *summed*, never averaged: every loss is divided by the counts of the whole
step already (passes.py), so the sum over ranks is the gradient of the step.

A group of weights is gathered at once: one group per block, per module of multi-token prediction, per stack of routed experts
if those are divided too (expert.py), per router that computes in float32 (it is gathered so), and one for the rest: embedding,
last norm, head. This last group stays gathered from the first layer to the end of the backward pass, because the head reads it
outside of any module's forward pass.

Every micro-batch ends with a reduce-scatter, so that unsharded gradients never outlive a block; only the all-reduce over
copies waits for the last micro-batch. The price is one reduce-scatter per micro-batch, the gain 4 bytes per parameter of the
whole model.
"""

from __future__ import annotations

import dataclasses
from functools import partial

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor, Shard

from ingot.model.feed_forward.router import Router
from ingot.model.transformer import Transformer
from ingot.train.parallel.expert import ExpertParallel
from ingot.train.parallel.layout import Layout


def shard_mesh(layout: Layout) -> DeviceMesh:
    """[shard × context], or [replicate, shard × context] where there are copies."""
    if layout.size("context") == 1:
        return layout.mesh["shard"] if layout.size("replicate") == 1 else layout.mesh["replicate", "shard"]
    flat = layout.mesh["shard", "context"]._flatten("shard_context")
    return flat if layout.size("replicate") == 1 else DeviceMesh._concatenate([layout.mesh["replicate"], flat])


def shard_model(model: Transformer, layout: Layout, dtype: torch.dtype) -> None:
    """Shard every group of weights in place; `dtype` is that of the products."""
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32, cast_forward_inputs=False)
    exact = dataclasses.replace(policy, param_dtype=torch.float32)
    mesh, reshard = shard_mesh(layout), layout.config.reshard_after_forward
    for module in list(model.modules()):
        if isinstance(module, Router) and module.config.float32 and dtype != torch.float32:
            fully_shard(module, mesh=mesh, mp_policy=exact, reshard_after_forward=reshard)
        if isinstance(module, ExpertParallel):
            across = module.shard_mesh
            ranks = across.size(across.ndim - 1)
            fully_shard(
                module,
                mesh=across,
                mp_policy=policy,
                reshard_after_forward=reshard,
                shard_placement_fn=partial(expert_placement, ranks=ranks),
            )
    parts = [*model.blocks, *(model.multi_token.parts if model.multi_token is not None else ())]
    for part in parts:
        fully_shard(part, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard)
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    register_fsdp_forward_method(model, "hidden")
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)  # a plain sum: nothing to multiply, and gloo knows no other


def expert_placement(parameter: nn.Parameter, ranks: int) -> Shard:
    """An axis of stacked experts that is not divided yet, as the first one is; FSDP wants it to be a multiple of the ranks."""
    assert isinstance(parameter, DTensor)
    divided = {placement.dim for placement in parameter.placements if isinstance(placement, Shard)}
    free = [axis for axis, size in enumerate(parameter.shape) if axis not in divided and size % ranks == 0]
    return Shard(free[0] if free else 0)


def reduce_over_copies(model: nn.Module, wanted: bool) -> None:
    """Whether the next backward pass adds the gradients of all copies (HSDP); the last pass of a step does."""
    if isinstance(model, FSDPModule):
        model.set_requires_all_reduce(wanted)
