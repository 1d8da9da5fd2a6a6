"""The pre-training stage: next-token prediction on token shards; also mid-training, re-decay and context extension.

With a `model` the stage starts from fresh weights; with an input checkpoint it goes on from there, from its end or from a step
that the stage before kept (start.py). Length, batch size, learning rate and data mixture are functions of the step
(optim/batch_size.py, optim/schedule.py, tokens/loader.py); only the end of a phase that waits for a plateau is decided while
running, and checkpoints carry it. Validation bits per byte are measured on documents that no source trains on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from ingot.model.config import ModelConfig
from ingot.model.count import count
from ingot.optim.schedule import learning_rate_share
from ingot.tokens.batch import Batch
from ingot.tokens.loader import MixtureLoader, validation_batches
from ingot.tokens.pack_index import Counts, PackIndex
from ingot.tokens.shards import Shards
from ingot.train.batches import deal, padding_like, split_rows
from ingot.train.loop import Trainer
from ingot.train.lora import adapt
from ingot.train.losses.terms import language_terms
from ingot.train.parallel.layout import AXES, world_size
from ingot.train.plateau import PlateauWatch
from ingot.train.pretrain_config import PretrainConfig
from ingot.train.saving.state import load_run
from ingot.train.source import Source
from ingot.train.start import fill_model, start_checkpoint, start_model
from ingot.workspace.errors import RecipeError
from ingot.workspace.stage import StageFolder


class ShardSource(Source):
    """Steps of the mixture, cut into micro-batches of whole rows; moves to the next phase when a plateau is reached.

    Steps are made ahead as if none were reached: moving to the next phase makes them anew (Feed.restart).
    """

    ahead = True

    def __init__(self, loader: MixtureLoader, config: PretrainConfig) -> None:
        self.loader, self.phases, self.sizes = loader, config.phases, loader.batches
        self.rows = max(1, config.micro_batch_tokens // config.sequence_length)
        self.names = loader.source_names
        self.planned_tokens = self.sizes.rows_before(config.steps) * config.sequence_length
        self.phase, self.watch = 0, PlateauWatch()

    def batches(self, step: int, rank: int = 0, world: int = 1) -> tuple[Sequence[Batch], dict[str, float]]:
        batches = split_rows(self.loader.batch(step, rank, world), self.rows)
        most = -(-self.sizes.rows(step) // world)  # rows of the rank that has most: all make as many passes
        batches += [padding_like(batches[0])] * (-(-most // self.rows) - len(batches))
        return batches, {}

    def validated(self, step: int, bits_per_byte: float) -> bool:
        """Take note of a validation after the data of `step`; if it completes a plateau, the next step begins the next phase."""
        next_row = self.sizes.rows_before(step + 1)
        phase = self.loader.schedule.phase(next_row - 1)
        if phase != self.phase:
            self.phase, self.watch = phase, PlateauWatch()
        plateau = self.phases[phase].plateau
        if plateau is None or not self.watch.reached(bits_per_byte, plateau):
            return False
        self.loader.next_phase(next_row)
        return True

    def state(self) -> dict[str, Any]:
        return {"order": self.loader.state(), "phase": self.phase, "validations": self.watch.values}

    def restore(self, state: dict[str, Any]) -> None:
        if state:  # nothing at the start of a run
            self.loader.restore(state["order"])
            self.phase, self.watch = state["phase"], PlateauWatch(state["validations"])


@torch.no_grad()
def bits_per_byte(trainer: Trainer, batches: Sequence[tuple[Batch, int]]) -> float:
    """−Σ log2 p(token) over the validation text / its bytes: comparable between tokenizers. The same on all ranks."""
    total = torch.zeros((), dtype=torch.float64, device=trainer.device)
    layout = trainer.layout
    rank, world = (0, 1) if layout is None else (layout.data_rank, layout.data_world)
    for batch in deal([batch for batch, _ in batches], rank, world):
        scored = trainer.passes.score(batch)
        total -= (scored.logprobs * scored.streams["weight"]).sum()
    if layout is not None:
        total = layout.sum_over(total, *AXES[:-1])  # tensor ranks have the same
    return float(total) / math.log(2) / sum(size for _, size in batches)


def check_vocabulary(shards: Shards, model: ModelConfig) -> None:
    """Shards of another tokenizer may have ids that the model does not; a GPU would only say that something is wrong."""
    if shards.vocabulary_size > (model.vocabulary_size or 0):
        raise RecipeError(
            f"the shards have token ids up to {shards.vocabulary_size - 1}, the model's vocabulary_size is "
            f"{model.vocabulary_size}",
            place=str(shards.folder),
            fix="tokenize with the tokenizer that the model has",
        )


def check_passes(config: PretrainConfig, world: int) -> None:
    """The noise scale compares a step with its first pass: steps of a single one would measure nothing."""
    rows = -(-config.batch_sizes.final // world)
    if max(1, config.micro_batch_tokens // config.sequence_length) >= rows:
        smaller = f"set micro_batch_tokens to {rows // 2 * config.sequence_length} or less"
        raise RecipeError(
            f"measure_noise compares a step with its first pass, and here a step has one only ({rows} rows a rank)",
            place="measure_noise",
            fix=smaller if rows > 1 else "raise batch_tokens, or use fewer ranks",
        )


def pack_index(folder: Path) -> PackIndex:
    """The cache of the stage's packed-row counts; its processes count them together."""
    if world_size() == 1:
        return PackIndex(folder)

    def total(counts: Counts) -> Counts:
        totals = torch.from_numpy(counts.copy())
        distributed.all_reduce(totals)
        return totals.numpy()

    return PackIndex(folder, distributed.get_rank(), world_size(), total)


def run(config: PretrainConfig, inputs: Mapping[str, Path], folder: StageFolder) -> dict[str, Any]:
    """Train on the shards; makes a checkpoint."""
    model = start_model(config, inputs, folder.seed, empty=world_size() > 1)
    base = start_checkpoint(config, inputs) if "checkpoint" in inputs else None
    fill = adapt(model, lambda each: fill_model(each, config, inputs, folder.seed), config.lora, base, folder.seed)
    sizes, schedule = config.batch_sizes, config.schedule_in_steps
    loader = MixtureLoader(
        inputs["shards"],
        config.phases,
        sequence_length=config.sequence_length,
        batches=sizes,
        total_steps=config.steps,
        seed=folder.seed,
        packing=config.packing,
        verify=config.verify_shards,
        index=pack_index(folder.path / "packing"),
    )
    check_vocabulary(loader.shards, model.config)
    source = ShardSource(loader, config)
    at_once = max(1, config.micro_batch_tokens // config.sequence_length)  # as in training: it fits, and is compiled
    validation = validation_batches(inputs["shards"], config.sequence_length, config.validation_rows, at_once)

    def validate(step: int, metrics: dict[str, Any]) -> dict[str, float]:
        if (step + 1) % config.validate_every and step + 1 != config.steps:
            return {}
        trainer.heartbeat.beat("validation")
        bits = bits_per_byte(trainer, validation)
        if source.validated(step + trainer.data_offset, bits):
            trainer.feed.restart(step + 1 + trainer.data_offset)
            folder.progress.say(f"step {step + 1}: validation has stopped improving; the next data mixture begins")
        return {"validation_bits_per_byte": bits}

    def rate(step: int) -> float:
        return sizes.rate_share(step + trainer.data_offset) * learning_rate_share(schedule, step, config.steps)

    trainer = Trainer(
        model,
        language_terms(model, config),
        source,
        config,
        folder,
        after_step=validate,
        after_every=config.validate_every,
        rate=rate,
        fill=fill,
    )
    if config.measure_noise:
        check_passes(config, 1 if trainer.layout is None else trainer.layout.data_world)
    if config.keep_optimizer:
        load_run(start_checkpoint(config, inputs), trainer.model, trainer.optimizer)
    last = trainer.run()
    names = ("loss", "validation_bits_per_byte", "tokens")
    counted = count(model.config)  # not of the model at hand, which may be a stage of a pipeline
    parameters = counted.total + counted.multi_token.total
    return {"parameters": parameters, **{name: last[name] for name in names if name in last}}
