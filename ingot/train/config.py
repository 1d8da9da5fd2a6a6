"""Options that every training stage shares. Those of pre-training, which hold a whole model, are in pretrain_config.py."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ingot.model.lora_config import LoraConfig
from ingot.optim.config import OPTIMIZERS, AdamWConfig, AnyOptimizer, ScheduleConfig, Tokens
from ingot.optim.schedule import check_schedule
from ingot.train.guards.config import GuardsConfig
from ingot.train.parallel.config import MeshConfig
from ingot.train.saving.config import CheckpointsConfig
from ingot.workspace.config import Config


class ActivationsConfig(Config):
    """Which activations a forward pass keeps for the backward pass; the others are computed again."""

    keep: Literal["all", "products", "blocks", "budget"] = Field(
        "all",
        description="all; products: what matrix products and attention make (selective); blocks: only what enters each block "
        "(full recomputation); budget: what fits (torch.compile chooses)",
    )
    budget: float = Field(0.5, ge=0, le=1, description="share of the activations' memory that `budget` may keep")

    @model_validator(mode="after")
    def _has_a_budget(self) -> ActivationsConfig:
        if self.keep != "budget":
            self.refuse("budget", because=f"keep: {self.keep} has none", instead="set keep: budget")
        return self


class TrainingConfig(Config):
    """Options that every training stage has."""

    how: ClassVar[frozenset[str]] = frozenset(
        {
            *("micro_batch_tokens", "compile", "graphs", "activations", "mesh", "device"),
            *("checkpoints", "guards", "measure_noise", "log_every"),
        }
    )
    steps: int = Field(gt=0, description="optimizer steps")
    sequence_length: int = Field(gt=1, description="positions in a packed row")
    micro_batch_tokens: int = Field(
        16_384, gt=0, description="tokens per forward pass; more memory when larger, the same numbers whatever it is"
    )
    optimizer: AnyOptimizer = Field(AdamWConfig(), description="the optimizer")
    schedule: ScheduleConfig = Field(ScheduleConfig(), description="the learning rate over the steps")
    lora: LoraConfig | None = Field(
        None, description="train adapters of low rank beside frozen weights (LoRA, QLoRA); null: train the weights"
    )
    train_only: tuple[str, ...] = Field(
        (),
        description='patterns of parameter names to train, such as "*.indexer.*"; the others are frozen; a pattern after ! is '
        'frozen too ("!*.indexer.*": all but these train); none: all train',
    )
    precision: Literal["auto", "float32", "bfloat16", "float8"] = Field(
        "auto",
        description="of matrix products; masters stay float32. auto: bfloat16 where the hardware has it, float32 elsewhere; "
        "float8: large products of the blocks in float8 (Hopper and newer), the rest in bfloat16",
    )
    float8_scaling: Literal["tensor", "row"] = Field(
        "tensor", description="float8: one scale per tensor (faster), or one per row (more exact)"
    )
    compile: Literal["auto", "off", "blocks"] = Field(
        "auto", description="torch.compile for every block by itself; auto: on a GPU, but not in float32"
    )
    graphs: Literal["auto", "off", "on"] = Field(
        "auto",
        description="CUDA graphs: capture a step's passes once and replay them; auto: on one GPU, for passes so short that "
        "launching kernels would be what takes time",
    )
    activations: ActivationsConfig = Field(ActivationsConfig(), description="what is kept for the backward pass")
    mesh: MeshConfig = Field(MeshConfig(), description="how the processes of torchrun divide the work")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto: the GPU if there is one")
    checkpoints: CheckpointsConfig = Field(CheckpointsConfig(), description="checkpoints of the run in progress")
    guards: GuardsConfig = Field(GuardsConfig(), description="what is watched, and what is done about it")
    measure_noise: bool = Field(
        False, description="measure the gradient noise scale, the batch size beyond which larger ones pay little"
    )
    log_every: int = Field(1, gt=0, description="steps between lines in metrics.jsonl")

    counts_tokens: ClassVar[bool] = (
        False  # whether all steps have step_tokens: a schedule may then be written in tokens
    )

    divides_rows: ClassVar[bool] = True  # whether context parallelism may divide what it trains on

    validates: ClassVar[bool] = False  # whether it measures the model between steps

    @model_validator(mode="after")
    def _knows_its_best(self) -> Self:
        if self.checkpoints.keep_best and not self.validates:
            raise ValueError(
                "checkpoints.keep_best: only pre-training validates between steps, so no step is known as the best; give "
                "keep_every, and measure the checkpoints (an eval stage with `every`, then `choose`)"
            )
        return self

    @model_validator(mode="after")
    def _adapters_fit(self) -> Self:
        if self.lora is None:
            return self
        if self.train_only:
            raise ValueError(
                "lora: adapters alone are trained; leave train_only out, and name their layers in lora.layers"
            )
        if self.optimizer.qk_clip is not None:
            raise ValueError("lora: qk_clip shrinks weights, which are frozen here; leave it out")
        if self.lora.train_rows and self.optimizer.kind not in OPTIMIZERS.classes:
            raise ValueError(
                f"lora.train_rows: {self.optimizer.short_name} may move a row that has no gradient; leave it out, or choose adamw"
            )
        if self.lora.base != "float32" and self.precision == "float8":
            raise ValueError(f"lora: products in float8 need weights in float32, and base is {self.lora.base}")
        return self

    @model_validator(mode="after")
    def _float8_fits(self) -> Self:
        if self.precision != "float8":
            self.refuse(
                "float8_scaling",
                because=f"nothing is multiplied in float8 (precision: {self.precision})",
                instead="set precision: float8",
            )
        return self

    @model_validator(mode="after")
    def _schedule_fits(self) -> Self:
        counted = any(piece.until_tokens is not None for piece in self.schedule.pieces)
        if counted and not self.counts_tokens:
            raise ValueError("until_tokens: this stage does not know its tokens in advance; use until")
        if not counted and self.steps:  # 0: the data says how many (post/passes_config.py)
            check_schedule(self.schedule, self.steps)
        return self

    @model_validator(mode="after")
    def _noise_fits(self) -> Self:
        if self.measure_noise and (self.mesh.replicate > 1 or self.mesh.pipeline > 1):
            raise ValueError(
                "measure_noise: the gradient of a step's first pass, which it compares with the whole one's, is not formed on a "
                "mesh with replicate or pipeline; use shard, tensor and context only, or leave measure_noise out"
            )
        return self

    @property
    def step_tokens(self) -> int | None:
        """The most tokens that a step can have; None where the options do not say."""
        return None

    @property
    def total_tokens(self) -> int | None:
        """The tokens of all steps; None where only the data says."""
        return None

    @property
    def sampler_tensor(self) -> int:
        """Over how many devices a model that it samples with is divided, if not as the trained one is."""
        return 1


class LanguageConfig(TrainingConfig):
    """Training to predict the next token of texts."""

    z_loss: float = Field(
        0.0, ge=0, description="coefficient of (log Z)², which keeps the logits from drifting (OLMo 2: 1e-5)"
    )


class Plateau(Config):
    """When a validation counts as no longer improving."""

    window: int = Field(3, gt=0, description="validations that are compared with the best one before them")
    min_improvement: float = Field(
        ge=0, description="bits per byte by which the best of them must be lower, or else the phase ends"
    )


class Phase(Config):
    """A stretch of pre-training with one data mixture."""

    until: float | None = Field(None, gt=0, le=1, description="ends at this share of the steps")
    until_tokens: Tokens | None = Field(None, gt=0, description="ends after this many tokens of the stage")
    plateau: Plateau | None = Field(
        None,
        description="ends when validation_bits_per_byte stops improving; `until` or `until_tokens` is then the latest end",
    )
    weights: dict[str, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(
        min_length=1,
        description="share of rows by shard source, normalised to one; NAME@32768+ are a source's documents of at least so "
        "many tokens",
    )

    @model_validator(mode="after")
    def _one_end(self) -> Phase:
        if self.until is not None and self.until_tokens is not None:
            raise ValueError("a phase ends at until or at until_tokens, not at both")
        if self.until is None and self.until_tokens is None and self.plateau is None:
            raise ValueError("a phase needs an end: until, until_tokens or plateau")
        if not any(self.weights.values()):
            raise ValueError("no source has a weight above 0")
        return self
