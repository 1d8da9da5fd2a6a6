"""Estimates FLOPs, memory and time of a recipe's training stages on this CPU, from the model's counts (model/count.py).

GPUs are planned by memory.py, speed.py and placement.py.

    tokens  = steps · batch_tokens (fewer while the batch is warmed up)
    FLOPs   = tokens · (6 · active matrix parameters + mixing), forward and backward
    memory  = 16 · parameters (float32 weights, gradients, two moments of AdamW)
              + 4 · tokens of a pass · values kept for the backward pass: 4·vocabulary for the loss, and per layer
                8·width + 3·(queries + keys + values) + 5·feed-forward width
              + what a stage that samples holds in addition (`Stage.memory`), in each of the processes that its mesh asks for
    seconds = FLOPs / (machine's matrix product speed · UTILISATION)

A mixer without queries, keys and values counts what enters its mixing (`MixerConfig.input_width`); a mixture of experts counts
the experts that a token passes.

How good that is, on a CPU: the factors of the memory were fitted to the peak of three small models, where the estimate
is 0.92 to 1.01 of what was measured; on four other shapes it is 0.69 to 0.87 of it, too low by 70 to 100 MB. The time
was 0.6 to 2.6 times the measured one in ten readings, all on a busy machine; it was not checked on an idle one.

Stages that sample from the model (prefer, rl, distill) or pack conversations (sft) do not know their tokens in advance:
for them only steps, parameters and memory are given. Memory of a distillation is not known where its teacher is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ingot.inference.planned_memory import MASTER
from ingot.model.config import ModelConfig
from ingot.recipe.recipe import FromPath, FromStage, InputSource, Recipe, RecipeStage
from ingot.recipe.stages import STAGES, Table
from ingot.tokens.config import TokenizerConfig
from ingot.train.config import TrainingConfig
from ingot.workspace.estimates import NOTHING, SamplerMemory
from ingot.workspace.stage import Stage

UTILISATION = 0.5
"""Share of the matrix product speed that a training step of a small model reaches."""
BYTES_PER_PARAMETER = 16
BYTES_PER_VALUE = 4


@dataclass(frozen=True)
class Cost:
    """The cost of a stage; None where it is not known in advance."""

    steps: int | None = None
    parameters: int | None = None
    tokens: int | None = None
    flops_per_token: int | None = None
    flops: int | None = None
    memory_bytes: int | None = None
    sampling: SamplerMemory = NOTHING

    def seconds(self, flops_per_second: float) -> float | None:
        """The time on a machine that multiplies matrices at this speed."""
        return None if self.flops is None else self.flops / (flops_per_second * UTILISATION)


def stage_costs(recipe: Recipe, *, look: bool = False, table: Table = STAGES) -> dict[str, Cost]:
    """The cost of every training stage, by name; `look` as in `stage_models`."""
    from ingot.model.count import count  # here, because it imports torch

    costs: dict[str, Cost] = {}
    models = stage_models(recipe, look=look, table=table)
    for name, model in models.items():
        stage = recipe.stage(name)
        config, kind = stage.config, table.find(stage.kind)
        if not isinstance(config, TrainingConfig):  # a merge has a model and trains nothing
            continue
        work = kind.cost(config)
        if model is None:
            costs[name] = Cost(steps=work.steps, tokens=work.tokens)
            continue
        counted = count(model)
        parameters = counted.counted(("body", "embedding", "head", "multi_token"))
        per_token = counted.training_flops_per_token(config.sequence_length)
        processes = mesh_processes(config)
        held = kind.memory(config, role_models(stage, recipe, models), processes)
        training = BYTES_PER_PARAMETER * parameters + BYTES_PER_VALUE * pass_tokens(config) * kept_values(model)
        costs[name] = Cost(
            steps=work.steps,
            parameters=parameters,
            tokens=work.tokens,
            flops_per_token=per_token,
            flops=work.tokens * per_token if work.tokens is not None else None,
            memory_bytes=None if held is None else _peak(training, held, processes, parameters),
            sampling=held or NOTHING,
        )
    return costs


def mesh_processes(config: TrainingConfig) -> int:
    """The processes that a mesh names; `shard: 0` takes as many as there are, and counts as 1."""
    mesh = config.mesh
    return mesh.replicate * max(1, mesh.shard) * mesh.tensor * mesh.context * mesh.pipeline


def _peak(training: int, held: SamplerMemory, processes: int, parameters: int) -> int:
    if not held.before:
        return training + processes * held.total
    whole = 0 if held.whole else MASTER * parameters  # one process samples from the model that it trains
    return max(training, whole + processes * held.total)


def stage_models(recipe: Recipe, *, look: bool = False, table: Table = STAGES) -> dict[str, ModelConfig | None]:
    """The model of every stage that trains one or makes a checkpoint, by the stage's name.

    None where the recipe alone does not say it, because a checkpoint or a tokenizer lies on disk; `look` opens those.
    """
    models: dict[str, ModelConfig | None] = {}
    for stage in recipe.stages:
        kind = table.find(stage.kind)
        if isinstance(merged := stage.inputs.get("checkpoints"), Mapping):  # of one architecture all
            models[stage.name] = source_model(next(iter(merged.values())), recipe, models, look=look)
        elif isinstance(stage.config, TrainingConfig) or "checkpoint" in kind.makes:
            models[stage.name] = _model(stage, kind, recipe, models, look=look)
    return models


def role_models(
    stage: RecipeStage, recipe: Recipe, models: Mapping[str, ModelConfig | None]
) -> dict[str, ModelConfig | None]:
    """The models of a stage by role: `checkpoint` is the one that it trains, of several (teachers) it is the first."""
    found: dict[str, ModelConfig | None] = {}
    for role, sources in stage.inputs.items():
        source = next(iter(sources.values())) if isinstance(sources, Mapping) else sources
        if source.artifact == "checkpoint":
            found[role] = source_model(source, recipe, models)
    return {**found, "checkpoint": models.get(stage.name)}


def source_model(
    source: InputSource, recipe: Recipe, models: Mapping[str, ModelConfig | None], *, look: bool = False
) -> ModelConfig | None:
    """The model of a checkpoint: that of the stage which makes it, the recipe's preset for its path, or what lies there."""
    if isinstance(source, FromStage):
        return models.get(source.stage)
    name = recipe.preset_of(source.path)
    if name is not None and not source.path.exists():
        from ingot.model.presets.preset import preset

        return preset(name)
    if not look:
        return None
    from ingot.checkpoints.checkpoint import read_config  # here, because it imports torch

    return read_config(source.path)


def pass_tokens(config: TrainingConfig) -> int:
    """Tokens of a forward pass: a whole step may be fewer than `micro_batch_tokens`."""
    return min(config.micro_batch_tokens, config.step_tokens or config.micro_batch_tokens)


def kept_values(model: ModelConfig) -> int:
    """How many numbers per token wait for the backward pass, by the formula above."""
    kept = 4 * (model.vocabulary_size or 0)
    for layer in range(model.depth):
        block = model.block(layer)
        mixed = 0 if block.mixer is None else block.mixer.input_width
        inner = 0 if block.feed_forward is None else block.feed_forward.inner_width
        kept += 8 * model.width + 3 * mixed + 5 * inner
    return kept


def _model(
    stage: RecipeStage, kind: Stage, recipe: Recipe, models: Mapping[str, ModelConfig | None], *, look: bool
) -> ModelConfig | None:
    """The model that a stage trains: its own, or that of the checkpoint it goes on from, with its changes."""
    source = stage.inputs.get("checkpoint")
    before = None if source is None or isinstance(source, Mapping) else source_model(source, recipe, models, look=look)
    model: ModelConfig | None = kind.model(stage.config, before)
    if model is None or model.vocabulary_size is not None:
        return model
    size = _vocabulary_size(stage, recipe, look=look)
    return None if size is None else model.model_copy(update={"vocabulary_size": size})


def _vocabulary_size(stage: RecipeStage, recipe: Recipe, *, look: bool) -> int | None:
    source = stage.inputs.get("tokenizer")
    if look and isinstance(source, FromPath):
        from ingot.tokens.tokenizer import Tokenizer

        return Tokenizer.load(source.path).vocabulary_size
    maker = recipe.stage(source.stage).config if isinstance(source, FromStage) else None
    return maker.vocabulary_size if isinstance(maker, TokenizerConfig) else None
