"""Divides a model over the ranks of a layout, one axis after the other.

    tensor → expert → pipeline → (recomputation and compilation, prepare.py) → shard

Context parallelism changes no weight: the passes of a step do it. A model that was built on the meta device has no weights yet;
`materialise` allocates this rank's shards alone and lets the caller fill them, so that a model may be larger than a device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import FSDPModule

from ingot.checkpoints.stored_model import StoredModel
from ingot.model.initialise import copy_shard
from ingot.model.lora import LoraLinear, is_adapter, lora_layers, merged_state
from ingot.model.order import ShardOrder, in_ranks_order, local, orders, whole
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
    source = stored.parameters
    for layer, module in lora_layers(model).items():
        if module.frozen is not None:  # held in fewer bits, whole on every rank (model/frozen.py)
            name = f"{layer}.weight"
            module.frozen.store(source.rows(name, 0, source.entries[name].rows))
    names = (name for name in parts(model) if not is_adapter(name) and ".frozen." not in name)
    keep_shards(model, ((name, source.rows(name, 0, source.entries[name].rows)) for name in names))


@torch.no_grad()
def keep_shards(model: Transformer, weights: Iterable[tuple[str, Tensor]]) -> None:
    """Fill a model from whole tensors, one after the other; each rank keeps its shard of those that it has a part of."""
    own, row_orders = parts(model), orders(model)
    for name, value in weights:
        if name in own:
            copy_shard(own[name], in_ranks_order(value, row_orders.get(name)))


def parts(model: Transformer) -> dict[str, Tensor]:
    """This rank's parameters and buffers by name, sharded: FSDP may have left some gathered after a pass."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def local_parts(model: Transformer) -> list[Tensor]:
    """What this rank holds of every parameter and buffer, without copying."""
    return [local(each.detach()) for each in parts(model).values()]


@torch.no_grad()
def whole_weights(
    model: Transformer, layout: Layout | None, dtype: torch.dtype | None = None
) -> Iterator[tuple[str, Tensor]]:
    """The weights and buffers of the plain model that computes the same (adapters merged), whole, one after the other.

    Of a divided model one tensor at a time is gathered, on every rank: all must read to the end. It is gathered in `dtype`, as
    far as a model in that precision has it so. A tensor that only one stage of a pipeline has is sent to the other stages.
    """
    if layout is None:
        yield from merged_state(model).items()
        return
    own: dict[str, Any] = get_model_state_dict(model)
    adapted = {f"{name}.weight": layer for name, layer in lora_layers(model).items()}
    row_orders, stage = orders(model), layout.rank("pipeline")
    listed = layout.union([(name, stage) for name in (*own, *adapted)], "pipeline")
    holders = dict(reversed(listed))  # the first that has it
    with torch.device("meta"):
        plain = Transformer(model.config).to(dtype)
    for name, like in plain.state_dict().items():
        if holders[name] != stage:
            value = torch.empty_like(like, device=layout.mesh.device_type)
        elif name in adapted:
            value = _merged(adapted[name], name, row_orders).to(like.dtype)
        else:
            value = whole(own[name].to(like.dtype), row_orders.get(name))
        if layout.size("pipeline") > 1:
            distributed.broadcast(value, group=layout.mesh["pipeline"].get_group(), group_src=holders[name])
        yield name, value


@torch.no_grad()
def gather_weights(model: Transformer, copy: Transformer, layout: Layout) -> None:
    """Fill a whole copy on every rank with the weights and buffers of a divided model."""
    own = copy.state_dict()
    for name, value in whole_weights(model, layout, copy.embedding.weight.dtype):
        own[name].copy_(value)


def _merged(layer: LoraLinear, name: str, row_orders: Mapping[str, ShardOrder]) -> Tensor:
    """W + s·B A of a layer whose parts are divided."""
    base = layer.frozen.matrix() if layer.frozen is not None else whole(layer.weight, row_orders.get(name))
    merged = base.clone()
    for part in layer.low_ranks:
        down, up = part.whole_factors()
        merged[part.span.start : part.span.end] += up @ down * part.scale
    return merged
