"""A further head for a model on disk that has none yet: one linear row on the last hidden state (model config: `heads`)."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from ingot.checkpoints.stored_model import StoredModel
from ingot.checkpoints.tensors import Entry, Tensors


class OneMore(Tensors):
    """Tensors with one more, which is in memory."""

    def __init__(self, source: Tensors, name: str, tensor: Tensor) -> None:
        self.source, self.name, self.tensor = source, name, tensor
        self.entries = {**source.entries, name: Entry(tuple(tensor.shape), tensor.dtype)}

    def rows(self, name: str, start: int, end: int) -> Tensor:
        return self.tensor[start:end] if name == self.name else self.source.rows(name, start, end)


def with_head(stored: StoredModel, name: str, seed: int | None) -> StoredModel:
    """The model with the head `name`, drawn like its other matrices (without a seed: 0); one that has it stays as it is."""
    config = stored.config
    if name in config.heads:
        return stored
    std = config.initial.std if config.initial.std is not None else config.initial.scale / config.width**0.5
    row = torch.zeros(1, config.width)
    if seed is not None:
        row.normal_(0.0, std, generator=torch.Generator().manual_seed(seed))
    changed = config.model_copy(update={"heads": (*config.heads, name)})
    parameters = OneMore(stored.parameters, f"heads.{name}.weight", row)
    return dataclasses.replace(stored, config=changed, parameters=parameters)
