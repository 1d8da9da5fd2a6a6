"""Options that every training stage shares, and those of pre-training."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from ingot.model.config import ModelConfig
from ingot.optim.config import AdamWConfig, ScheduleConfig
from ingot.workspace.config import Config


class TrainingConfig(Config):
    """What the loop needs, whatever it trains on."""

    steps: int = Field(gt=0, description="optimizer steps")
    sequence_length: int = Field(gt=1, description="positions in a packed row")
    micro_batch_tokens: int = Field(
        16_384, gt=0, description="tokens per forward pass; more memory when larger, the same numbers whatever it is"
    )
    optimizer: AdamWConfig = Field(AdamWConfig(), description="the optimizer")
    schedule: ScheduleConfig = Field(ScheduleConfig(), description="the learning rate over the steps")
    train_only: tuple[str, ...] = Field(
        (),
        description='patterns of parameter names to train, such as "*.indexer.*"; the others are frozen; none: all train',
    )
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto",
        description="auto: bfloat16 matrix products where the hardware has them, float32 elsewhere; masters float32",
    )
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto: the GPU if there is one")
    checkpoint_every: int = Field(50, gt=0, description="steps between checkpoints")
    keep_checkpoints: int = Field(2, gt=0, description="checkpoints kept while the stage runs")
    log_every: int = Field(1, gt=0, description="steps between lines in metrics.jsonl")


class LanguageConfig(TrainingConfig):
    """Training to predict the next token of texts."""

    z_loss: float = Field(
        0.0, ge=0, description="coefficient of (log Z)², which keeps the logits from drifting (OLMo 2: 1e-5)"
    )


class Phase(Config):
    """A stretch of pre-training with one data mixture."""

    until: float = Field(gt=0, le=1, description="ends at this share of the steps")
    weights: dict[str, float] = Field(min_length=1, description="share of rows by shard source, normalised to one")


class PretrainConfig(LanguageConfig):
    """Pre-training, mid-training and context extension: next-token prediction on token shards."""

    model: ModelConfig | None = Field(None, description="the model to start; null to go on from the input checkpoint")
    batch_tokens: int = Field(gt=0, description="tokens in one optimizer step (a multiple of sequence_length)")
    phases: tuple[Phase, ...] = Field(min_length=1, description="data mixtures in order; the last one ends at 1")
    rope_base: float | None = Field(None, gt=1, description="new θ of the rotary positions, to extend the context")
    validate_every: int = Field(50, gt=0, description="steps between validations")
    validation_rows: int = Field(64, gt=0, description="rows of validation text that are scored")

    @model_validator(mode="after")
    def _consistent(self) -> PretrainConfig:
        if self.batch_tokens % self.sequence_length:
            raise ValueError(
                f"batch_tokens ({self.batch_tokens}) must be a multiple of sequence_length ({self.sequence_length})"
            )
        ends = [phase.until for phase in self.phases]
        if ends != sorted(set(ends)) or ends[-1] != 1:
            raise ValueError(f"phases must end at rising shares of the steps, the last at 1; they end at {ends}")
        return self
