"""Frozen weights beside the trained ones, on the same layout: a reference model, and weights that take its place for a while.

    FrozenModel     a second model, divided over the ranks as the trained one is: 4 B · parameters / ranks on each
    KeptWeights     a copy of this rank's shards in the host's memory, which change places with the model's to be scored by

Neither needs a whole model in any process.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ingot.model.transformer import Transformer
from ingot.train.parallel.apply import divide_parts, keep_shards, local_parts, materialise, shard_weights, whole_weights
from ingot.train.parallel.pipeline import make_passes
from ingot.train.passes import Objective, Passes


class FrozenModel:
    """A plain model (adapters merged) with the weights that the trained one has when this is made, or `replace` is called."""

    def __init__(self, trained: Passes) -> None:
        self.trained, layout = trained, trained.layout
        with torch.device("meta"):
            model = Transformer(trained.model.config)
        model.tokenizer = trained.model.tokenizer
        if layout is not None:
            divide_parts(model, layout)
            shard_weights(model, layout, trained.dtype)
        materialise(model, trained.device, self._copy)
        model.requires_grad_(requires_grad=False)
        self.passes = make_passes(model, Objective(()), trained.device, trained.dtype, layout)

    def replace(self) -> None:
        """Take the weights that the trained model has now."""
        self._copy(self.passes.model)

    def _copy(self, model: Transformer) -> None:
        keep_shards(model, whole_weights(self.trained.model, self.trained.layout))


class KeptWeights:
    """The weights that a model has when this is made."""

    def __init__(self, model: Transformer) -> None:
        self.model = model
        self.kept = [each.to("cpu", copy=True) for each in local_parts(model)]

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """A context in which the model has them; then it has its own again, to the bit."""
        own = local_parts(self.model)
        now = [each.to("cpu", copy=True) for each in own]
        try:
            torch._foreach_copy_(own, self.kept)
            yield
        finally:
            torch._foreach_copy_(local_parts(self.model), now)
