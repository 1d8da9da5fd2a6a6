"""A trainer in milliseconds: a tiny model, data made from the step's number, and a progress that remembers lines."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from ingot.model.transformer import Transformer
from ingot.tokens.batch import Batch
from ingot.tokens.batch import TokenSequence as Text
from ingot.tokens.packing import make_batch
from ingot.train.batches import deal, split_rows
from ingot.train.config import TrainingConfig
from ingot.train.hooks import Hook
from ingot.train.loop import AfterStep, Trainer
from ingot.train.losses.terms import CrossEntropy, LossTerm
from ingot.train.source import Source
from ingot.workspace.stage import StageFolder
from tests.model.tiny import VOCABULARY, config, random_model

TIMES = (
    "seconds",
    "tokens_per_second",
    "data_wait",
    "data_wait_share",
    "checkpoint_stall",
    "compute_seconds",
    "memory_gib",
    "learner_idle_share",
    "sampler_idle_share",
    "sampler_tokens_per_second",
)
"""What differs between two runs that do the same."""


class StepSource(Source):
    """Random sequences of step s, from the number s alone; `before` is called with it first."""

    def __init__(self, before: Callable[[int], None] = lambda step: None) -> None:
        self.before = before

    def batches(self, step: int, rank: int = 0, world: int = 1) -> tuple[Sequence[Batch], dict[str, float]]:
        self.before(step)
        rng = random.Random(step)
        texts = []
        for _ in range(6):
            tokens = [rng.randrange(VOCABULARY) for _ in range(rng.randint(2, 12))]
            texts.append(Text(tokens, {"weight": [1.0] * len(tokens)}))
        return deal(split_rows(make_batch(texts, 16), 2), rank, world), {"drawn": float(step)}


class FixedSource(Source):
    """The same batches in every step."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self.given = batches

    def batches(self, step: int, rank: int = 0, world: int = 1) -> tuple[Sequence[Batch], dict[str, float]]:
        return deal(self.given, rank, world), {}


def training_config(**changes: Any) -> TrainingConfig:
    parts = {
        "steps": 12,
        "sequence_length": 16,
        "optimizer": {"lr": 0.01},
        "checkpoints": {"every": 3},
        "precision": "float32",
        "device": "cpu",
    }
    return TrainingConfig.model_validate({**parts, **changes})


def make_trainer(
    folder: StageFolder,
    *,
    source: Source | None = None,
    terms: Sequence[LossTerm] = (CrossEntropy(),),
    model: Transformer | None = None,
    after_step: AfterStep | None = None,
    temperature: float = 1.0,
    hooks: Sequence[Hook] = (),
    **changes: Any,
) -> Trainer:
    """A trainer of a fresh tiny model, always the same one."""
    return Trainer(
        model or random_model(config()),
        terms,
        source or StepSource(),
        training_config(**changes),
        folder,
        after_step=after_step,
        temperature=temperature,
        hooks=hooks,
    )


def run_without_final_checkpoint(trainer: Trainer) -> dict[str, Any]:
    """The steps alone: writing their result takes as long as one of them."""
    with patch.object(trainer.saver, "finish"):
        return trainer.run()


def loss_and_gradients(
    model: Transformer,
    terms: Sequence[LossTerm],
    batches: Sequence[Batch],
    folder: StageFolder,
    temperature: float = 1.0,
) -> tuple[dict[str, float], dict[str, Tensor]]:
    """Metrics and gradients of one real step of the trainer; the model itself is left as it was."""
    trainer = make_trainer(
        folder,
        source=FixedSource(batches),
        terms=terms,
        model=copy.deepcopy(model),
        temperature=temperature,
        steps=1,
        optimizer={"clip": 1e12},
    )
    gradients: dict[str, Tensor] = {}

    def keep(*_: object) -> None:
        for name, parameter in trainer.model.named_parameters():
            assert parameter.grad is not None
            gradients[name] = parameter.grad.clone()

    trainer.optimizer.register_step_pre_hook(keep)
    metrics = run_without_final_checkpoint(trainer)
    return {name: value for name, value in metrics.items() if name not in TIMES}, gradients


def records(folder: StageFolder) -> list[dict[str, Any]]:
    """The metrics of a run without the times."""
    return [{name: value for name, value in row.items() if name not in TIMES} for row in folder.metrics.read()]


def same_weights(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())
