"""Sparse attention (DeepSeek-V3.2, model/mixers/sparse.py) for a model on disk that attends to all keys: its indexers are new.

Every layer with latent attention gets one. Its weights are drawn as a new model's are (model/initialise.py), each from a seed of
its own, when they are read: a rank that keeps a shard of one never holds the others. No weight of the checkpoint changes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch
from pydantic import ValidationError
from torch import Tensor, nn

from ingot.checkpoints.stored_model import StoredModel, shapes
from ingot.checkpoints.tensors import Entry, Tensors
from ingot.model.config import ModelConfig
from ingot.model.initialise import initial_value
from ingot.model.mixers.indexer import SparseConfig
from ingot.model.mixers.mla import MlaConfig
from ingot.workspace.config import content_hash
from ingot.workspace.errors import RecipeError

WEIGHTS = ("heads", "head_width", "pairing")
"""The options that an indexer's weights were made for."""


class WithDrawn(Tensors):
    """Tensors with new ones, which are drawn when they are read."""

    def __init__(self, source: Tensors, new: Mapping[str, nn.Parameter], config: ModelConfig, seed: int) -> None:
        self.source, self.new, self.config, self.seed = source, new, config, seed
        drawn = {name: Entry(tuple(each.shape), torch.float32) for name, each in new.items()}
        self.entries = {**source.entries, **drawn}

    def rows(self, name: str, start: int, end: int) -> Tensor:
        if name not in self.new:
            return self.source.rows(name, start, end)
        generator = torch.Generator().manual_seed(int(content_hash([self.seed, name], digits=15), 16))
        return initial_value(name, self.new[name], self.config, generator)[start:end]


def sparse_model(model: ModelConfig, sparse: SparseConfig) -> ModelConfig:
    """The model with this sparse attention in every block that has latent attention.

    A block that is already sparse keeps its weights, so its options that shape them must not change; `shared` stays as it is.
    """
    latent = {name: block.mixer for name, block in model.blocks.items() if isinstance(block.mixer, MlaConfig)}
    if not latent:
        raise RecipeError("sparse: no block of the model has latent attention (kind: mla)", fix="leave it out")
    if sparse.shared:
        raise RecipeError("sparse.shared: a layer that is given sparse attention needs an indexer", fix="leave it out")
    for name, mixer in latent.items():
        _check_block(name, mixer, sparse)
    data = model.model_dump()
    for name, mixer in latent.items():
        shared = mixer.sparse is not None and mixer.sparse.shared
        data["blocks"][name]["mixer"]["sparse"] = {**sparse.model_dump(), "shared": shared}
    if any(mixer.sparse is None for mixer in latent.values()):
        data["export_as"] = None  # a dense model's type has no indexer
    try:
        return ModelConfig.model_validate(data)
    except ValidationError as error:
        raise RecipeError(f"sparse: {error.errors()[0]['msg']}", fix="see SparseConfig in the reference") from error


def _check_block(name: str, mixer: MlaConfig, sparse: SparseConfig) -> None:
    if mixer.sparse is None:
        if sparse.loss == 0:
            raise RecipeError("sparse.loss is 0: new indexers would stay random", fix="leave it out; it is 1 then")
        return
    for option in WEIGHTS:
        own, wanted = getattr(mixer.sparse, option), getattr(sparse, option)
        if own != wanted:
            raise RecipeError(
                f"sparse.{option}: block {name} has an indexer with {own}, and the stage says {wanted}",
                fix=f"write {option}: {own}; keep, loss and stage may change",
            )


def with_indexers(stored: StoredModel, config: ModelConfig, seed: int) -> StoredModel:
    """The model on disk with the configuration that `sparse_model` made of its own, and weights for the indexers it lacks."""
    new = {
        name: each
        for name, each in shapes(config).items()
        if name not in stored.parameters.entries and ".indexer." in name and isinstance(each, nn.Parameter)
    }
    parameters = WithDrawn(stored.parameters, new, config, seed) if new else stored.parameters
    return dataclasses.replace(stored, config=config, parameters=parameters)
