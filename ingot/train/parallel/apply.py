"""Divides a model over the ranks of a layout, one axis after the other.

    tensor → expert → pipeline → (recomputation and compilation, prepare.py) → shard

Context parallelism changes no weight: the passes of a step do it. A model that was built on the meta device has no weights yet;
`materialise` allocates this rank's shards alone and lets the caller fill them, so that a model may be larger than a device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed.checkpoint.state_dict import get_model_state_dict

from ingot.checkpoints.stored_model import StoredModel
from ingot.model.initialise import copy_shard
from ingot.model.lora import LoraLinear, is_adapter, lora_layers
from ingot.model.order import Order, in_ranks_order, orders, whole
from ingot.model.transformer import Transformer
from ingot.train.parallel.layout import Layout


def divide_parts(model: Transformer, layout: Layout) -> None:
    """Divide heads, channels, experts and layers over ranks: before blocks are compiled."""
    if layout.size("tensor") > 1:
        from ingot.train.parallel.tensor import apply_tensor_parallel

        apply_tensor_parallel(model, layout)
    if layout.config.expert > 1:
        from ingot.train.parallel.expert import apply_expert_parallel

        apply_expert_parallel(model, layout)
    if layout.size("pipeline") > 1:
        from ingot.train.parallel.stages import cut_into_stages

        cut_into_stages(model, layout)


def shard_weights(model: Transformer, layout: Layout, dtype: torch.dtype) -> None:
    """Shard what is left over the data ranks: after blocks were compiled."""
    if layout.size("replicate", "shard", "context") > 1:
        from ingot.train.parallel.shard import shard_model

        shard_model(model, layout, dtype)


def materialise(model: Transformer, device: torch.device, fill: Callable[[Transformer], None]) -> None:
    """Give a model that was built and divided on the meta device memory for its shards, and let `fill` set them.

    `fill` is `initialise` with a seed, or `load_shards`; buffers (biases and momenta of routers) start at zero.
    """
    model.to_empty(device=device)
    with torch.no_grad():
        for buffer in model.buffers():
            buffer.zero_()
    fill(model)


@torch.no_grad()
def load_shards(model: Transformer, stored: StoredModel) -> None:
    """Fill a divided model from one on disk, whatever its format: a tensor is read whole, and this rank keeps its shard."""
    row_orders, source = orders(model), stored.parameters
    for layer, module in lora_layers(model).items():
        if module.frozen is not None:  # held in fewer bits, whole on every rank (model/frozen.py)
            name = f"{layer}.weight"
            module.frozen.store(source.rows(name, 0, source.entries[name].rows))
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if is_adapter(name) or ".frozen." in name:
            continue
        value = source.rows(name, 0, source.entries[name].rows)
        copy_shard(tensor, in_ranks_order(value, row_orders.get(name)))


@torch.no_grad()
def gather_weights(model: Transformer, copy: Transformer, layout: Layout) -> None:
    """Fill a whole copy on every rank with the weights and buffers of a divided model, gathering one tensor at a time.

    A tensor that only one stage of a pipeline holds is gathered there, and sent to the other stages.
    """
    own: dict[str, Any] = get_model_state_dict(model)
    adapted = {f"{name}.weight": layer for name, layer in lora_layers(model).items()}
    row_orders, stage = orders(model), layout.rank("pipeline")
    holders = dict(
        reversed(layout.union([(name, stage) for name in (*own, *adapted)], "pipeline"))
    )  # the first that has it
    for name, tensor in copy.state_dict().items():
        if holders[name] == stage and name in adapted:  # the copy has no adapters: it gets their sum
            _gather_merged(adapted[name], tensor, name, row_orders)
        elif holders[name] == stage:
            tensor.copy_(whole(own[name], row_orders.get(name)))
        if layout.size("pipeline") > 1:
            distributed.broadcast(tensor, group=layout.mesh["pipeline"].get_group(), group_src=holders[name])


def _gather_merged(layer: LoraLinear, tensor: Tensor, name: str, row_orders: Mapping[str, Order]) -> None:
    """W + s·B A of a layer whose parts are divided."""
    base = layer.frozen.matrix() if layer.frozen is not None else whole(layer.weight, row_orders.get(name))
    merged = base.clone()
    for part in layer.low_ranks:
        down, up = part.whole_factors()
        merged[part.span.start : part.span.end] += up @ down * part.scale
    tensor.copy_(merged)
