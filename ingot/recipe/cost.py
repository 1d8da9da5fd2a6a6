"""What the training stages of a recipe cost, by arithmetic, without torch.

    tokens  = steps · batch_tokens
    FLOPs   = tokens · (6 · matrix parameters + attention), forward and backward (ModelConfig.training_flops_per_token)
    memory  = 16 · parameters (float32 weights, gradients, two moments of AdamW)
              + 4 · micro_batch_tokens · values kept for the backward pass: 4·vocabulary for the loss, and per layer
                8·width + 3·(queries + keys + values) + 5·feed-forward width
    seconds = FLOPs / (machine's matrix product speed · UTILISATION)

How good that is, on a CPU: the factors of the memory were fitted to the peak of three small models, where the estimate
is 0.92 to 1.01 of what was measured; on four other shapes it is 0.69 to 0.87 of it, too low by 70 to 100 MB. The time
was 0.6 to 2.6 times the measured one in ten readings, all on a busy machine; it was not checked on an idle one.

Stages that sample from the model (prefer, rl, distill) or pack conversations (sft) do not know their tokens in advance:
for them only steps, parameters and memory are given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ingot.model.config import ModelConfig
from ingot.recipe.recipe import FromStage, Recipe, RecipeStage
from ingot.tokens.config import TokenizerConfig
from ingot.train.config import PretrainConfig, TrainingConfig

UTILISATION = 0.5
"""Share of the matrix product speed that a training step of a small model reaches."""
BYTES_PER_PARAMETER = 16
BYTES_PER_VALUE = 4


@dataclass(frozen=True)
class Cost:
    """What is known in advance; None where it is not."""

    steps: int | None = None
    parameters: int | None = None
    tokens: int | None = None
    flops: int | None = None
    memory_bytes: int | None = None

    def seconds(self, flops_per_second: float) -> float | None:
        """The time on a machine that multiplies matrices at this speed."""
        return None if self.flops is None else self.flops / (flops_per_second * UTILISATION)


def stage_costs(recipe: Recipe) -> dict[str, Cost]:
    """The cost of every training stage, by name."""
    models: dict[str, ModelConfig | None] = {}
    costs: dict[str, Cost] = {}
    for stage in recipe.stages:
        config = stage.config
        if not isinstance(config, TrainingConfig):
            continue
        model = models[stage.name] = _model(stage, recipe, models)
        tokens = config.steps * config.batch_tokens if isinstance(config, PretrainConfig) else None
        if model is None:
            costs[stage.name] = Cost(steps=config.steps, tokens=tokens)
            continue
        costs[stage.name] = Cost(
            steps=config.steps,
            parameters=model.parameters(),
            tokens=tokens,
            flops=tokens * model.training_flops_per_token(config.sequence_length) if tokens is not None else None,
            memory_bytes=training_memory(model, config.micro_batch_tokens),
        )
    return costs


def training_memory(model: ModelConfig, micro_batch_tokens: int) -> int:
    """Bytes that a training step holds at its peak, by the formula above."""
    kept = 4 * (model.vocabulary_size or 0)
    for layer in range(model.depth):
        attention = model.block(layer).attention
        heads = attention.heads + 2 * attention.key_value_heads
        kept += 8 * model.width + 3 * heads * attention.head_width + 5 * model.block(layer).feed_forward.width
    return BYTES_PER_PARAMETER * model.parameters() + BYTES_PER_VALUE * micro_batch_tokens * kept


def _model(stage: RecipeStage, recipe: Recipe, models: Mapping[str, ModelConfig | None]) -> ModelConfig | None:
    """The model that a stage trains: its own, or that of the checkpoint it goes on from."""
    if isinstance(stage.config, PretrainConfig) and stage.config.model is not None:
        model = stage.config.model
        if model.vocabulary_size is not None:
            return model
        size = _vocabulary_size(stage, recipe)
        return None if size is None else model.model_copy(update={"vocabulary_size": size})
    source = stage.inputs.get("checkpoint")
    return models.get(source.stage) if isinstance(source, FromStage) else None


def _vocabulary_size(stage: RecipeStage, recipe: Recipe) -> int | None:
    source = stage.inputs.get("tokenizer")
    maker = recipe.stage(source.stage).config if isinstance(source, FromStage) else None
    return maker.vocabulary_size if isinstance(maker, TokenizerConfig) else None
