"""The pre-training stage: next-token prediction on token shards; also mid-training and context extension.

With a `model` the stage starts from fresh weights; with an input checkpoint it goes on from there, optionally with a
larger RoPE base and longer rows (adjusted base frequency, arXiv 2309.16039), which extends the context. Validation bits
per byte are measured on documents that no source trains on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ingot.model.checkpoint import load_model
from ingot.model.config import ModelConfig
from ingot.model.initialise import initialise
from ingot.model.transformer import Transformer
from ingot.tokens.batch import Batch
from ingot.tokens.loader import MixtureLoader, validation_batches
from ingot.tokens.tokenizer import Tokenizer
from ingot.train.batches import split_rows
from ingot.train.config import PretrainConfig
from ingot.train.device import precision_context
from ingot.train.language import language_terms
from ingot.train.logprobs import score
from ingot.train.loop import Trainer
from ingot.workspace.errors import RecipeError
from ingot.workspace.stage import Stage, StageFolder


class ShardSource:
    """Steps of the mixture, cut into micro-batches of whole rows."""

    def __init__(self, loader: MixtureLoader, rows: int) -> None:
        self.loader, self.rows = loader, rows

    def batches(self, step: int) -> tuple[Sequence[Batch], dict[str, float]]:
        return split_rows(self.loader.batch(step), self.rows), {}


def start_model(config: PretrainConfig, inputs: Mapping[str, Path], seed: int) -> Transformer:
    """Fresh weights for `config.model`, or the input checkpoint with its context extended."""
    if (config.model is None) == ("checkpoint" not in inputs):
        raise RecipeError(
            "pretrain needs either `model` (fresh weights) or an input checkpoint, and not both",
            fix="set `model` in the first pretrain stage only; later ones go on from its checkpoint",
        )
    if config.model is None:
        model = load_model(inputs["checkpoint"])
        changed = model.config.model_copy(update={"context": max(model.config.context, config.sequence_length)})
        extended = Transformer(changed.with_rope_base(config.rope_base) if config.rope_base else changed)
        extended.load_state_dict(model.state_dict())
        extended.tokenizer = model.tokenizer
        return extended
    tokenizer = Tokenizer.load(inputs["tokenizer"])
    shape = config.model.model_dump() | {"vocabulary_size": config.model.vocabulary_size or tokenizer.vocabulary_size}
    model_config = ModelConfig.model_validate(shape | {"context": config.sequence_length})
    if tokenizer.vocabulary_size > shape["vocabulary_size"]:
        raise RecipeError(
            f"the tokenizer has {tokenizer.vocabulary_size} tokens, the model's vocabulary_size is {shape['vocabulary_size']}",
            fix="leave model.vocabulary_size out; it is then taken from the tokenizer",
        )
    model = Transformer(model_config.with_rope_base(config.rope_base) if config.rope_base else model_config)
    initialise(model, seed)
    model.tokenizer = tokenizer
    return model


@torch.no_grad()
def bits_per_byte(trainer: Trainer, batches: Sequence[tuple[Batch, int]]) -> float:
    """−Σ log2 p(token) over the validation text / its bytes: comparable between tokenizers."""
    total, size = 0.0, 0
    for batch, text_bytes in batches:
        with precision_context(trainer.device, trainer.dtype):
            scored = score(trainer.model, batch.to(trainer.device))
        total -= float((scored.logprobs * scored.streams["weight"]).sum())
        size += text_bytes
    return total / math.log(2) / size


def run(config: PretrainConfig, inputs: Mapping[str, Path], folder: StageFolder) -> dict[str, Any]:
    """Train on the shards; makes a checkpoint."""
    model = start_model(config, inputs, folder.seed)
    loader = MixtureLoader(
        inputs["shards"],
        config.phases,
        sequence_length=config.sequence_length,
        rows_per_step=config.batch_tokens // config.sequence_length,
        total_steps=config.steps,
        seed=folder.seed,
    )
    validation = validation_batches(inputs["shards"], config.sequence_length, config.validation_rows)

    def validate(step: int, metrics: dict[str, Any]) -> dict[str, float]:
        if (step + 1) % config.validate_every and step + 1 != config.steps:
            return {}
        return {"validation_bits_per_byte": bits_per_byte(trainer, validation)}

    rows = max(1, config.micro_batch_tokens // config.sequence_length)
    trainer = Trainer(
        model, language_terms(model, config), ShardSource(loader, rows), config, folder, after_step=validate
    )
    last = trainer.run()
    names = ("loss", "validation_bits_per_byte", "tokens")
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return {"parameters": parameters, **{name: last[name] for name in names if name in last}}


STAGE = Stage(
    kind="pretrain",
    config=PretrainConfig,
    needs={"tokenizer": "tokenizer", "shards": "shards", "checkpoint": "checkpoint"},
    makes=("checkpoint",),
    run=run,
    optional=("checkpoint",),
)
