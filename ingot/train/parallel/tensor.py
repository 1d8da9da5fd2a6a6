"""Tensor parallelism (Megatron-LM, arXiv 1909.08053): the ranks of the `tensor` axis hold different heads and inner channels.

    y = Σ_ranks  W_out[:, rank] · f( W_in[rank, :] · x )

Each part that has inner channels is cut along them: the first product by its rows, the last by its columns. What happens in
between (norms per head, rotation, attention, activations) touches no other channel, so a rank runs the part's own code with
fewer heads. Two operations tie the ranks together:

    enter   forward: nothing                      backward: the sum over the ranks, for each saw only its heads' gradient
    leave   forward: the sum over the ranks       backward: nothing

`enter` comes before everything that all ranks hold alike and that this rank uses only in part: a part's input, the
latents *and the shared rotated key* of multi-head latent attention, the router's weights. With it, everything that is not cut has
the whole gradient on every rank, the same bits on all.

A part says how it is cut (`sharding()`, model/sharding.py); embedding and head are cut by vocabulary (vocabulary.py). A part that
says nothing (the recurrent mixers, norms of the stream, routers) is the same on all ranks. Cut parameters keep their names and
become DTensors on the `tensor` axis, whose rows are in the ranks' order where a weight has sections (model/order.py). The layers
of a cut part become those of divided.py.
"""

from __future__ import annotations

from functools import partial
from itertools import accumulate, pairwise
from typing import Any

from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from ingot.model.feed_forward.experts import Experts
from ingot.model.linear import Linear
from ingot.model.lora import LoraLinear
from ingot.model.matrices import Rows
from ingot.model.order import ORDERS, ShardOrder
from ingot.model.sharding import Sharding
from ingot.model.transformer import Transformer
from ingot.train.parallel.divided import (
    ByInputs,
    ByOutputs,
    DividedExperts,
    DividedNorm,
    LoraByInputs,
    LoraByOutputs,
    SharedA,
    SharedB,
    SharedNorm,
)
from ingot.train.parallel.layout import Layout
from ingot.train.parallel.ties import enter, mean
from ingot.train.parallel.vocabulary import DividedEmbedding, divided_logits
from ingot.workspace.errors import RecipeError


def apply_tensor_parallel(model: Transformer, layout: Layout) -> None:
    """Cut the model's parts over the `tensor` axis, in place. The whole weights are there before, or all are on meta."""
    if layout.size("tensor") > 1:
        divide_over(layout.mesh["tensor"], model)


def cut_layers(model: nn.Module) -> dict[str, int]:
    """The axis along which each layer of these parts is cut, by its name; the others are the same on all ranks."""
    found = dict[str, int]()
    for name, part in model.named_modules():
        sharding = find_sharding(part)
        cut = () if sharding is None else (sharding.rows, sharding.columns)
        found |= {f"{name}.{each}": axis for axis, names in enumerate(cut) for each in names}
    return found


def divide_over(mesh: DeviceMesh, model: Transformer) -> None:
    """The same over a mesh of one axis; a sampler has no other (inference/divided/)."""
    for name, part in list(model.named_modules()):
        sharding = find_sharding(part)
        if sharding is not None:
            _divide(name, part, sharding, mesh)
    _divide_vocabulary(model, mesh)


def find_sharding(part: nn.Module) -> Sharding | None:
    """How a part is cut, if its class says so; one that derives from it must say so itself, for what it adds may be whole."""
    sharding = vars(type(part)).get("sharding")
    found: Sharding | None = None if sharding is None else sharding(part)
    return found


def _divide(part_name: str, part: Any, sharding: Sharding, mesh: DeviceMesh) -> None:
    ranks, config = mesh.size(), part.config
    uneven = {name: getattr(config, name) for name in sharding.counts if getattr(config, name) % ranks}
    if uneven:
        named = " and ".join(f"{name} ({value})" for name, value in uneven.items())
        raise RecipeError(
            f"tensor ({ranks}) does not divide {named}", place=part_name, fix="choose a tensor that divides all of them"
        )
    group = mesh.get_group()
    for name in sharding.rows:
        _cut_rows(part, name, mesh)
    for name in sharding.columns:
        _cut_columns(part, name, mesh)
    for name in sharding.norms:
        _tie(getattr(part, name), SharedNorm, group)
    if isinstance(part, Experts):
        _tie(part, DividedExperts, group)
    part.config = config.model_copy(update={name: getattr(config, name) // ranks for name in sharding.counts})
    if sharding.enter == "heads":
        part.to_heads, part.all_heads = partial(enter, group=group), partial(mean, group=group)
    elif sharding.enter == "input":
        part.register_forward_pre_hook(lambda _, inputs: (enter(inputs[0], group), *inputs[1:]))


def _divide_vocabulary(model: Transformer, mesh: DeviceMesh) -> None:
    """Embedding and head, which may be one, by their rows; a vocabulary that cannot be cut evenly stays whole on every rank."""
    group = mesh.get_group()
    if model.embedding.num_embeddings % mesh.size():
        return
    _cut(model.embedding, "weight", mesh, axis=0)
    _tie(model.embedding, DividedEmbedding, group)
    if not model.config.tied_embeddings:
        _cut(model.output, "weight", mesh, axis=0)
    model.project = partial(divided_logits, model, group)  # type: ignore[method-assign]


# ---- cutting


def _cut_rows(part: nn.Module, name: str, mesh: DeviceMesh) -> None:
    """Cut a layer or a parameter of the part by its rows, each of its sections for itself."""
    child = getattr(part, name)
    if isinstance(child, Tensor):
        stacked = isinstance(part, Experts)
        for each in (name, f"{name}_bias") if stacked else (name,):
            if part._parameters[each] is not None:
                _cut(part, each, mesh, axis=1 if stacked else 0, sections=find_sections(part, name))
        return
    sections = find_sections(part, f"{name}.weight")
    for each, _ in list(child.named_parameters(recurse=False)):
        _cut(child, each, mesh, axis=0, sections=sections)
    if isinstance(child, LoraLinear):
        _cut_adapters_by_rows(child, mesh, sections or (child.out_features,))
    else:
        _tie(child, ByOutputs if isinstance(child, Linear) else DividedNorm, mesh.get_group())


def _cut_columns(part: nn.Module, name: str, mesh: DeviceMesh) -> None:
    """Cut a layer or stacked weight by what it reads; its bias stays whole."""
    child = getattr(part, name)
    if isinstance(child, Tensor):
        _check_rounding(part, child, mesh)
        _cut(part, name, mesh, axis=2)
        return
    if isinstance(child, LoraLinear):
        _cut_adapters_by_columns(child, mesh)
        return
    _check_rounding(child, child.weight, mesh)
    _cut(child, "weight", mesh, axis=1)
    _tie(child, ByInputs, mesh.get_group())


def _cut_adapters_by_rows(layer: LoraLinear, mesh: DeviceMesh, sections: tuple[int, ...]) -> None:
    """Cut every B as the rows of the weight that it is added to; the layer's own parameters are cut already."""
    edges = [0, *accumulate(sections)]
    for part in layer.low_ranks:
        if not {part.span.start, part.span.end} <= set(edges):
            raise RecipeError(
                f"an adapter of rows {part.span.start} to {part.span.end} of a weight that tensor parallelism divides at "
                f"{', '.join(map(str, edges))}",
                place="lora.layers",
                fix="set mesh.tensor to 1, or leave that projection out",
            )
        inside = edges[edges.index(part.span.start) : edges.index(part.span.end) + 1]
        _cut(part, "lora_B", mesh, axis=0, sections=tuple(end - start for start, end in pairwise(inside)))
        _tie(part, SharedA, mesh.get_group())
    if layer.frozen is not None:
        layer.frozen.taken = 0, _own_numbers(sections, mesh)
    _tie(layer, LoraByOutputs, mesh.get_group())
    layer.ranks = mesh.size()


def _cut_adapters_by_columns(layer: LoraLinear, mesh: DeviceMesh) -> None:
    """Cut the weight and every A by what they read."""
    for part in layer.low_ranks:
        _cut(part, "lora_A", mesh, axis=1)
        _tie(part, SharedB, mesh.get_group())
    if layer.frozen is None:
        _cut(layer, "weight", mesh, axis=1)
    else:
        layer.frozen.taken = 1, _own_numbers((layer.in_features,), mesh)
    _tie(layer, LoraByInputs, mesh.get_group())


def _own_numbers(sections: tuple[int, ...], mesh: DeviceMesh) -> Tensor:
    """The numbers of this rank's rows or columns."""
    return ShardOrder.of_sections(0, sections, mesh.size()).rows.chunk(mesh.size())[mesh.get_local_rank()]


def _tie(module: nn.Module, kind: type[nn.Module], group: distributed.ProcessGroup) -> None:
    """Make a layer one of those of divided.py: its parameters and hooks stay, its forward pass is another."""
    module.__class__ = kind
    module.group = group  # type: ignore[assignment]


def find_sections(part: nn.Module, name: str) -> tuple[int, ...]:
    """The rows of the matrices that a fused weight holds one after the other; none where heads are interleaved."""
    described: tuple[Rows, ...] = getattr(part, "matrices", {}).get(name, ())
    return tuple(rows.heads * rows.width for rows in described) if all(r.stride == r.width for r in described) else ()


def _cut(module: nn.Module, name: str, mesh: DeviceMesh, *, axis: int, sections: tuple[int, ...] = ()) -> None:
    """Replace a parameter by this rank's part of it, as a DTensor of the whole shape."""
    whole, ranks, rank = module._parameters[name], mesh.size(), mesh.get_local_rank()
    assert whole is not None
    size = whole.shape[axis] // ranks
    if len(sections) > 1:
        order = ShardOrder.of_sections(axis, sections, ranks)
        module.__dict__.setdefault(ORDERS, {})[name] = order
        own = whole.detach().index_select(axis, order.rows[rank * size : (rank + 1) * size].to(whole.device))
    else:
        own = whole.detach().narrow(axis, rank * size, size).clone()
    divided = DTensor.from_local(own, mesh, [Shard(axis)], run_check=False)
    module._parameters[name] = nn.Parameter(divided, requires_grad=whole.requires_grad)


def _check_rounding(module: nn.Module, weight: Tensor, mesh: DeviceMesh) -> None:
    rounding = getattr(module, "rounding", None)
    group = None if rounding is None else rounding.keywords["group"]
    if rounding is not None and (group is None or weight.shape[-1] // mesh.size() % group):
        raise RecipeError(
            f"a quantisation group of {group or 'a whole row'} does not fit into the {weight.shape[-1] // mesh.size()} inputs "
            f"that a layer has on one of {mesh.size()} tensor ranks",
            place="model.quantisation.group",
            fix="choose a smaller group, or a smaller mesh.tensor",
        )
