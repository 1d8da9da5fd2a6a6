"""The model that a training stage begins with: fresh weights, or a checkpoint with what the stage changes about it.

What may change without changing weights: the reach of positions (a larger RoPE base, arXiv 2309.16039, or a scaling such as
YaRN, arXiv 2309.00071) and coefficients of the training itself: the weight of multi-token prediction and the rate at which
routers' biases move, which DeepSeek-V3 (arXiv 2412.19437) lowers late in its run. Stages that follow each other carry such a
change of recipe: one stage until the change, the next one from there. `sparse` alone adds weights: the indexers of sparse
attention (DeepSeek-V3.2), for a model that has none (checkpoints/indexers.py).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path

import torch

from ingot.checkpoints.checkpoint import open_model
from ingot.checkpoints.indexers import sparse_model, with_indexers
from ingot.checkpoints.stored_model import StoredModel
from ingot.model.config import ModelConfig
from ingot.model.initialise import initialise
from ingot.model.transformer import Transformer
from ingot.tokens.tokenizer import Tokenizer
from ingot.train.parallel.apply import load_shards
from ingot.train.parallel.layout import world_size
from ingot.train.pretrain_config import PretrainConfig
from ingot.train.saving.steps import find_step
from ingot.workspace.errors import RecipeError

BIAS_BALANCERS = ("bias", "smebu", "quantile")
"""Kinds of balancers with a `rate`, at which they move the routers' selection biases (feed_forward/config.py)."""


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


def changed_model(model: ModelConfig, config: PretrainConfig) -> ModelConfig:
    """The model's configuration with what the stage changes; no weight that it has gets another shape or meaning."""
    context = max(model.context, config.sequence_length)
    model = model.model_copy(update={"context": context})
    if config.rope_base is not None:
        model = model.with_rope_base(config.rope_base)
    if config.rope_scaling is not None:
        model = model.with_rope_scaling(config.rope_scaling, context)
    if config.multi_token_weight is not None:
        model = _with_multi_token_weight(model, config.multi_token_weight)
    if config.bias_rate is not None:
        model = _with_bias_rate(model, config.bias_rate)
    return model if config.sparse is None else sparse_model(model, config.sparse)


def _with_multi_token_weight(model: ModelConfig, weight: float) -> ModelConfig:
    if model.multi_token is None:
        raise RecipeError("multi_token_weight: the model has no multi-token prediction", fix="leave it out")
    return model.model_copy(update={"multi_token": model.multi_token.model_copy(update={"weight": weight})})


def _with_bias_rate(model: ModelConfig, rate: float) -> ModelConfig:
    """Another rate for the balancers that move selection biases, in every block that has one."""
    data = model.model_dump()
    channels = [block["feed_forward"] or {} for block in data["blocks"].values()]
    moving = [one for channel in channels for one in channel.get("balancers", ()) if one["kind"] in BIAS_BALANCERS]
    if not moving:
        raise RecipeError("bias_rate: no router of the model has a balancer that moves its bias", fix="leave it out")
    if rate == 0 and any(one["kind"] != "bias" for one in moving):
        raise RecipeError("bias_rate: 0 stops balancers of kind bias only", fix="give a small rate instead")
    for one in moving:
        one["rate"] = rate
    return ModelConfig.model_validate(data)
