"""Gives one process the float8 scales that the ranks of a mesh have, so that its numbers can be compared with theirs.

A rank scales what it multiplies: its rows or columns of a weight (tensor parallelism), its tokens of the rows (context
parallelism). So one process multiplies shard by shard, with a scale for each, and puts the results together: nothing else
differs, and the comparison is as sharp as in float32 but for single values that round to a neighbour.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from ingot.model.context_parallel import ContextParallel
from ingot.model.linear import Linear
from ingot.model.order import ShardOrder
from ingot.model.transformer import Transformer
from ingot.train.float8 import float8_layers
from ingot.train.parallel.config import MeshConfig
from ingot.train.parallel.tensor import find_sections, find_sharding

Multiply = Callable[[Tensor, Tensor, Tensor | None], Tensor]


def multiply_by_shards(model: Transformer, mesh: MeshConfig) -> None:
    """Make the layers that multiply in float8 do so shard by shard, as the ranks of `mesh` would."""
    found = {name: model.get_submodule(name) for name in float8_layers(model)}
    layers = {name: layer for name, layer in found.items() if isinstance(layer, Linear)}
    if mesh.tensor > 1:
        for name, part in model.named_modules():
            sharding = find_sharding(part)
            for each in sharding.rows if sharding is not None else ():
                if (layer := layers.get(f"{name}.{each}")) is not None:
                    sections = find_sections(part, f"{each}.weight") or (layer.out_features,)
                    rows = ShardOrder.of_sections(0, sections, mesh.tensor).rows.chunk(mesh.tensor)
                    layer.multiply = partial(_by_outputs, layer.multiply, rows)
            for each in sharding.columns if sharding is not None else ():
                if (layer := layers.get(f"{name}.{each}")) is not None:
                    layer.multiply = partial(_by_inputs, layer.multiply, mesh.tensor)
    if mesh.context > 1:
        for layer in layers.values():
            layer.multiply = partial(_by_tokens, layer.multiply, mesh.context)


def _by_outputs(multiply: Multiply, rows: tuple[Tensor, ...], x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    parts = [multiply(x, weight[own], None if bias is None else bias[own]) for own in rows]
    order = torch.cat(rows).argsort().to(x.device)
    return torch.cat(parts, dim=-1).index_select(-1, order)


def _by_inputs(multiply: Multiply, ranks: int, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    parts = zip(x.chunk(ranks, -1), weight.chunk(ranks, 1), strict=True)
    out = torch.stack([multiply(*part, None) for part in parts]).sum(0)
    return out if bias is None else out + bias.to(out.dtype)


def _by_tokens(multiply: Multiply, ranks: int, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    assert x.dim() == 3, "states [B, T, D]"
    shares = [ContextParallel(None, rank, ranks) for rank in range(ranks)]  # type: ignore[arg-type]  # nothing is sent
    index_T = torch.arange(x.shape[1], device=x.device)
    order = torch.cat([share.own(index_T, 0) for share in shares]).argsort()
    return torch.cat([multiply(share.own(x), weight, bias) for share in shares], dim=1).index_select(1, order)
