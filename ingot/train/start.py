"""The model that a training stage begins with: fresh weights, or a checkpoint with what the stage changes about it.

What may change is in changes.py; `sparse` alone adds weights (checkpoints/indexers.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path

import torch

from ingot.checkpoints.checkpoint import open_model
from ingot.checkpoints.indexers import with_indexers
from ingot.checkpoints.stored_model import StoredModel
from ingot.model.config import ModelConfig
from ingot.model.initialise import initialise
from ingot.model.transformer import Transformer
from ingot.tokens.tokenizer import Tokenizer
from ingot.train.changes import changed_model
from ingot.train.parallel.apply import load_shards
from ingot.train.parallel.layout import world_size
from ingot.train.pretrain_config import PretrainConfig
from ingot.train.saving.steps import find_step
from ingot.workspace.errors import RecipeError


def start_model(config: PretrainConfig, inputs: Mapping[str, Path], seed: int, *, empty: bool = False) -> Transformer:
    """Fresh weights for `config.model`, or those of the input checkpoint, with the stage's changes.

    An `empty` one is built on the meta device, to be divided over ranks first and filled by `fill_model` then.
    """
    if (config.model is None) == ("checkpoint" not in inputs):
        raise RecipeError(
            "pretrain needs either `model` (fresh weights) or an input checkpoint, and not both",
            fix="set `model` in the first pretrain stage only; later ones go on from its checkpoint",
        )
    if config.model is None:
        stored = _changed_checkpoint(config, inputs, seed)
        return _built(stored.config, stored.tokenizer(), empty=True) if empty else stored.load()
    tokenizer = Tokenizer.load(inputs["tokenizer"])
    shape = config.model.model_dump() | {"vocabulary_size": config.model.vocabulary_size or tokenizer.vocabulary_size}
    if tokenizer.vocabulary_size > shape["vocabulary_size"]:
        raise RecipeError(
            f"the tokenizer has {tokenizer.vocabulary_size} tokens, the model's vocabulary_size is {shape['vocabulary_size']}",
            fix="leave model.vocabulary_size out; it is then taken from the tokenizer",
        )
    fresh = ModelConfig.model_validate(shape | {"context": config.sequence_length})
    model = _built(changed_model(fresh, config), tokenizer, empty=empty)
    if not empty:
        initialise(model, seed)
    return model


def _built(config: ModelConfig, tokenizer: Tokenizer | None, *, empty: bool) -> Transformer:
    with torch.device("meta") if empty else nullcontext():
        model = Transformer(config)
    model.tokenizer = tokenizer
    return model


def fill_model(model: Transformer, config: PretrainConfig, inputs: Mapping[str, Path], seed: int) -> None:
    """Give a model that was started empty the weights that `start_model` would have given it; ranks keep their shards."""
    if config.model is None:
        load_shards(model, _changed_checkpoint(config, inputs, seed))
    else:
        initialise(model, seed)


def _changed_checkpoint(config: PretrainConfig, inputs: Mapping[str, Path], seed: int) -> StoredModel:
    """The stored model that the stage begins with, with its changes."""
    stored = open_model(start_checkpoint(config, inputs))
    changed = changed_model(stored.config, config)
    if config.sparse is not None:
        return with_indexers(stored, changed, seed)
    return dataclasses.replace(stored, config=changed)


def start_from(
    checkpoint: Path, device: torch.device, change: Callable[[StoredModel], StoredModel] = lambda stored: stored
) -> tuple[Transformer, Callable[[Transformer], None] | None]:
    """A checkpoint's model to be trained; if several processes divide it, an empty model and what fills it.

    `change` may give it parts that it does not have yet, such as a head.
    """
    stored = change(open_model(checkpoint))
    if world_size() == 1:
        return stored.load().to(device), None
    return _built(stored.config, stored.tokenizer(), empty=True), lambda model: load_shards(model, stored)


def start_checkpoint(config: PretrainConfig, inputs: Mapping[str, Path]) -> Path:
    """The input checkpoint, or the one that the input stage kept at `from_step`."""
    final = Path(inputs["checkpoint"])
    return final if config.from_step is None else find_step(final.parent, config.from_step)
