"""QK-clip: shrinks the projections of heads whose attention logits grow too large (Kimi K2, arXiv 2507.20534, section 2.1).

Let S_h be the largest logit, scaled as in the softmax, that head h had in a step (Record.max_logits). After the optimizer's
update, a head with S_h > τ has its projections shrunk so that its logits would have been γ_h = τ/S_h times as large:

    multi-head                    W_q^h, W_k^h · √γ_h
    grouped and multi-query       W_q^h · γ_h             keys are shared by a group of heads, of which only h is too large
    latent                        W_qc^h, W_kc^h · √γ_h  (content)      W_qr^h · γ_h  (rotated; its key is shared by all heads)

with the biases, where there are any. The step's own forward and backward pass are over by then and do not change. Logits are
linear in what is scaled: a head that is not clipped keeps its logits exactly, and one that is would have had at most τ.

A layer with norms of queries and keys is left alone: its logits do not depend on the size of the projections, and are bounded by
scale · width · the gains.

Nothing waits for the device; a head that is not clipped is multiplied by one. Sharded weights: each rank scales its rows. With
tensor parallelism a rank has its own heads, and `max_logits` are theirs.

Shapes: H heads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from ingot.model.config import ModelConfig
from ingot.model.linear import Linear
from ingot.model.matrices import Rows
from ingot.model.mixers.mixer import SoftmaxMixer
from ingot.model.transformer import Transformer
from ingot.optim.adamw import local

TENSOR = "tensor"  # the mesh axis along which heads are divided (train/parallel/layout.py)


@torch.no_grad()
def clip_query_key(model: Transformer, max_logits: Mapping[int, Tensor], threshold: float) -> dict[str, Tensor]:
    """Clip every head whose largest logit is above `threshold`; returns the largest logit and the share of clipped heads.

    `max_logits` may have layers that are on other stages of a pipeline: the numbers are those of the whole model everywhere.
    """
    if not max_logits:
        return {}
    clippable = {layer: logits_H for layer, logits_H in max_logits.items() if _clippable(model.config, layer)}
    factors = {layer: _factors(logits_H, threshold) for layer, logits_H in clippable.items()}
    for module in model.modules():
        if isinstance(module, SoftmaxMixer) and module.layer in factors:
            for projection, rows in module.logit_factors(factors[module.layer]):
                _scale(projection, rows)
    logits = torch.cat(list(max_logits.values()))
    clipped = torch.cat([logits.new_ones(0), *factors.values()]) < 1  # also where no layer can be clipped
    return {"largest_logit": logits.max(), "clipped_heads": clipped.sum() / len(logits)}


def _factors(logits_H: Tensor, threshold: float) -> Tensor:
    """γ of every head. A logit that is not finite says that the step is broken, not that the head is large."""
    return torch.where((logits_H > threshold) & logits_H.isfinite(), threshold / logits_H, 1.0)


def _clippable(config: ModelConfig, layer: int) -> bool:
    """Whether no norms bound the logits of a layer; layers beyond the last are of multi-token modules."""
    further = config.multi_token.block if config.multi_token is not None else ""
    mixer = (config.block(layer) if layer < config.depth else config.blocks[further]).mixer
    return mixer is not None and mixer.clippable


def _scale(layer: Linear, parts: Sequence[tuple[Rows, Tensor]]) -> None:
    """Multiply the heads' rows of a layer's weight and bias by their factors."""
    for parameter in (layer.weight, layer.bias):
        if parameter is not None:
            column = torch.ones(_rows_of_heads(parameter), 1, dtype=parameter.dtype, device=parameter.device)
            for rows, factor_H in parts:
                rows.of(column).mul_(factor_H.to(column.dtype)[:, None, None])
            local(parameter).mul_(_own_rows(column, parameter).view(-1, *(1,) * (parameter.dim() - 1)))


def _rows_of_heads(parameter: Tensor) -> int:
    """The rows that belong to this tensor-parallel rank's heads."""
    if not isinstance(parameter, DTensor):
        return parameter.shape[0]
    names = parameter.device_mesh.mesh_dim_names or ()
    divided = parameter.device_mesh.size(names.index(TENSOR)) if TENSOR in names else 1
    return parameter.shape[0] // divided


def _own_rows(column: Tensor, parameter: Tensor) -> Tensor:
    """The rows of this rank's heads that FSDP gave to it: FSDP cuts what tensor parallelism has cut before."""
    if not isinstance(parameter, DTensor):
        return column
    mesh = parameter.device_mesh
    names, coordinate = mesh.mesh_dim_names or ("",) * mesh.ndim, mesh.get_coordinate()
    assert coordinate is not None
    for axis, placement in enumerate(parameter.placements):
        if names[axis] != TENSOR and isinstance(placement, Shard | _StridedShard):
            size = -(-len(column) // mesh.size(axis))  # as torch.chunk does it: the last ranks may have fewer, or none
            column = column[coordinate[axis] * size : (coordinate[axis] + 1) * size]
    return column
