"""Merges checkpoints of one architecture into one, a tensor at a time.

    merge([A, B], MergeConfig(method="slerp"), folder)

Tensors are those of the Hugging Face form where the models have one (a query projection by itself, one expert by itself), as
other tools see them: the angle of slerp and the largest entries of TIES are those of such a tensor. Buffers (routers' biases) are
averaged like weights. Memory: a few copies of the largest tensor, however many models and layers there are.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from ingot.checkpoints.checkpoint import open_model, write_checkpoint
from ingot.checkpoints.convert import check_target
from ingot.checkpoints.families.table import architecture, write_config
from ingot.checkpoints.merge_config import OF_TWO, WITHOUT_BASE, MergeConfig
from ingot.checkpoints.merge_methods import merge_tensor
from ingot.checkpoints.stored_model import StoredModel, shapes
from ingot.checkpoints.tensors import Entry, Tensors
from ingot.checkpoints.translate import to_parameters, to_tensors
from ingot.tokens.tokenizer import TOKENIZER_FILE
from ingot.workspace.config import content_hash
from ingot.workspace.errors import ArtifactError, RecipeError, listed
from ingot.workspace.files import atomic_folder

HELD = 4  # merged tensors that are kept: one of our weights may be made of several of theirs, read in turns


def merge(
    models: Sequence[Path],
    config: MergeConfig,
    folder: Path,
    *,
    base: Path | None = None,
    seed: int = 0,
    replace: bool = False,
) -> Path:
    """Write the merged model as a checkpoint."""
    check_target(folder, replace)
    stored = merged([open_model(path) for path in models], config, None if base is None else open_model(base), seed)
    with atomic_folder(folder) as temporary:
        write_checkpoint(stored, temporary)
    return folder


def merged(
    models: Sequence[StoredModel], config: MergeConfig, base: StoredModel | None = None, seed: int = 0
) -> StoredModel:
    """The merged model, whose weights are computed when they are read; dtype, tokenizer and options are the first model's."""
    check_models(models, config, base)
    weights = config.weights or (1.0,) * len(models)
    first = models[0]
    parts = [*models, *([] if base is None else [base])]
    try:
        family, _ = write_config(first.config)
    except ArtifactError:  # a model that only Ingot has
        sources = [each.parameters for each in parts]
        parameters: Tensors = MergedTensors(sources, len(models), config, weights, seed)
    else:
        layout, state = family.layout(first.config), shapes(first.config)
        sources = [to_tensors(each.parameters, layout, state, each.place) for each in parts]
        parameters = to_parameters(
            MergedTensors(sources, len(models), config, weights, seed), layout, state, first.place
        )
        kept = {name: each for name, each in state.items() if not isinstance(each, torch.nn.Parameter)}
        own = MergedTensors([each.parameters for each in parts], len(models), config, weights, seed)
        parameters = Joined(parameters, own, frozenset(kept))
    return dataclasses.replace(first, parameters=parameters)


class MergedTensors(Tensors):
    """Tensors that are merged when they are read. The source after the models' is the base's, if there is one."""

    def __init__(
        self, sources: Sequence[Tensors], models: int, config: MergeConfig, weights: Sequence[float], seed: int
    ) -> None:
        self.models, self.base = sources[:models], sources[models] if len(sources) > models else None
        self.config, self.weights, self.seed = config, weights, seed
        self.entries: dict[str, Entry] = dict(sources[0].entries)
        self._held: OrderedDict[str, Tensor] = OrderedDict()

    def rows(self, name: str, start: int, end: int) -> Tensor:
        if name not in self._held:
            while len(self._held) >= HELD:
                self._held.popitem(last=False)
            self._held[name] = self._merge(name)
        self._held.move_to_end(name)
        tensor = self._held[name]
        return tensor[start:end] if tensor.dim() else tensor

    @torch.no_grad()
    def _merge(self, name: str) -> Tensor:
        def generator(model: int) -> torch.Generator:
            return torch.Generator().manual_seed(int(content_hash([self.seed, name, model], digits=15), 16))

        base = None if self.base is None else _whole(self.base, name)
        value = merge_tensor(self.config, lambda model: _whole(self.models[model], name), self.weights, base, generator)
        return value.to(self.entries[name].dtype)


class Joined(Tensors):
    """The tensors of one source, but some of them of another."""

    def __init__(self, source: Tensors, other: Tensors, names: frozenset[str]) -> None:
        self.source, self.other, self.names = source, other, names
        self.entries = source.entries

    def rows(self, name: str, start: int, end: int) -> Tensor:
        return (self.other if name in self.names else self.source).rows(name, start, end)


def _whole(source: Tensors, name: str) -> Tensor:
    return source.rows(name, 0, source.entries[name].rows).float()


def check_models(models: Sequence[StoredModel], config: MergeConfig, base: StoredModel | None) -> None:
    """Refuse models of different architectures or tokenizers, and a number of models that the method does not take."""
    if len(models) < 2 or (config.method in OF_TWO and len(models) != 2):
        wanted = "two" if config.method in OF_TWO else "at least two"
        raise RecipeError(f"{config.method} merges {wanted} models, given {len(models)}", place="merge")
    if config.weights and len(config.weights) != len(models):
        raise RecipeError(f"{len(config.weights)} weights for {len(models)} models", place="merge")
    if not config.is_own and (base is None) != (config.method in WITHOUT_BASE):
        problem = "takes no base" if base is not None else "adds differences from a base, and none is given"
        fix = "name it in `base` (--base)" if base is None else "leave `base` out"
        raise RecipeError(f"{config.method} {problem}", place="merge", fix=fix)
    first, kinds = models[0], architecture(models[0].config)
    for other in [*models[1:], *([] if base is None else [base])]:
        theirs = architecture(other.config)
        differing = [key for key in kinds.keys() | theirs.keys() if kinds.get(key) != theirs.get(key)]
        if differing:
            raise ArtifactError(
                f"another architecture than {first.place}: {listed(sorted(differing))} differ",
                place=other.place,
                fix="merge checkpoints that were trained from the same model",
            )
        if first.files.get(TOKENIZER_FILE) != other.files.get(TOKENIZER_FILE):
            raise ArtifactError(
                f"another tokenizer than {first.place}: the same number would be another token",
                place=other.place,
                fix="merge checkpoints with the same tokenizer",
            )
