"""The weights that the engine samples with: copies new ones in, and detects changes that were not announced.

The engine samples with the module that is trained, or with a copy of it in another precision (`in_precision`): on a GPU training
keeps its weights in float32, and sampling reads half as much in bfloat16.

After a copy both sides are compared by checksum (checksum.py). Between updates torch's count of writes to each tensor says, at no
cost, that nothing has changed; only after a write are the values compared.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from ingot.inference.checksum import state_checksum, weights_checksum
from ingot.inference.quantised.pack import pack_state, quantise_for_sampling
from ingot.model.config import ModelConfig
from ingot.model.lora import merged_state
from ingot.model.transformer import Transformer
from ingot.train.device import FLOAT8, stored_dtype
from ingot.workspace.errors import CheckFailed, IngotError


def in_precision(model: Transformer, dtype: torch.dtype) -> Transformer:
    """A copy of the model in another precision, to be sampled from; routers keep their float32 biases.

    In float8 (e4m3) are the products of large linear layers (quantised/); the rest of that copy is in bfloat16.
    """
    with torch.device(model.embedding.weight.device):
        copy = Transformer(model.config)
    copy.load_state_dict(merged_state(model))
    copy.tokenizer = model.tokenizer
    return _stored_in(copy, dtype)


def empty_model(config: ModelConfig, dtype: torch.dtype) -> Transformer:
    """A model for weights to come, of the shapes and precisions that `in_precision` gives."""
    return _stored_in(Transformer(config), dtype)


def _stored_in(model: Transformer, dtype: torch.dtype) -> Transformer:
    model = model.to(stored_dtype(dtype)).eval().requires_grad_(False)
    if dtype == FLOAT8:
        quantise_for_sampling(model, "float8")
    return model


class EngineWeights:
    """The weights of a model as they were when they were last looked at; `learner` is what it is a copy of, if it is one."""

    def __init__(self, model: Transformer, learner: Transformer | None = None) -> None:
        self.model, self._learner = model, learner
        self._accept(weights_checksum(model))

    def _accept(self, checksum: int) -> None:
        self.checksum = checksum
        self._source = self.checksum if self._learner is None else weights_checksum(self._learner)
        self._counters = self._count_writes()

    def refresh(self) -> None:
        """The shared module has been trained."""
        if self._learner is not None:
            self.load(merged_state(self._learner))
        else:
            self._accept(weights_checksum(self.model))

    def check(self, version: int) -> None:
        """Fail if they are not those that were taken over last."""
        counters = self._count_writes()
        if counters == self._counters:
            return
        if weights_checksum(self._learner or self.model) != self._source:
            raise CheckFailed(
                f"the weights are not those of version {version}: they changed without an update",
                place="engine",
                fix="call engine.update(None, version) after each change of the shared model",
            )
        self._counters = counters

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Copy new weights into the model, packed if its own are (quantised/), and make sure that they have arrived."""
        own, state = self.model.state_dict(), pack_state(self.model, state)
        check_shapes(state, {name: tuple(tensor.shape) for name, tensor in own.items()})
        with torch.no_grad():
            torch._foreach_copy_(list(own.values()), [state[name] for name in own])
        expected = state_checksum({name: state[name].to(tensor.device, tensor.dtype) for name, tensor in own.items()})
        if weights_checksum(self.model) != expected:
            raise CheckFailed("the weights did not arrive as they were sent", place="engine.update")
        self._accept(expected)

    def _count_writes(self) -> list[tuple[int, int]]:
        """For every weight, and every buffer (routers' biases), its address and how often it was written to in place."""
        source = self._learner or self.model
        tensors = (*source.parameters(), *source.buffers())
        return [(tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version) for tensor in tensors]


def check_shapes(state: Mapping[str, Tensor], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """An error for new weights that are not those of this model."""
    if wrong := sorted(shapes.keys() ^ state.keys()):
        raise IngotError(f"the new weights and the model differ in {wrong[0]!r}", place="engine.update")
    for name, shape in shapes.items():
        if tuple(state[name].shape) != shape:
            problem = f"{name} has shape {tuple(state[name].shape)}, the model {shape}"
            raise IngotError(problem, place="engine.update")
