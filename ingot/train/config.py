"""Options that every training stage shares, and those of pre-training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, Field, model_validator

from ingot.model.config import ModelConfig
from ingot.model.positions.config import Scaling
from ingot.model.presets.data import tuples
from ingot.optim.batch_size import BatchSizes
from ingot.optim.config import AdamWConfig, BatchWarmupConfig, OptimizerConfig, ScheduleConfig, Tokens
from ingot.optim.schedule import check_schedule, schedule_in_steps
from ingot.train.guards.config import GuardsConfig
from ingot.train.parallel.config import MeshConfig
from ingot.train.saving.config import CheckpointsConfig
from ingot.workspace.config import Config


class ActivationsConfig(Config):
    """What a forward pass keeps for the backward pass; the rest is computed again."""

    keep: Literal["all", "products", "blocks", "budget"] = Field(
        "all",
        description="all; products: what matrix products and attention make (selective); blocks: only what enters each block "
        "(full recomputation); budget: what fits (torch.compile chooses)",
    )
    budget: float = Field(0.5, ge=0, le=1, description="share of the activations' memory that `budget` may keep")


class TrainingConfig(Config):
    """What the loop needs, whatever it trains on."""

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
    optimizer: OptimizerConfig = Field(AdamWConfig(), description="the optimizer")
    schedule: ScheduleConfig = Field(ScheduleConfig(), description="the learning rate over the steps")
    train_only: tuple[str, ...] = Field(
        (),
        description='patterns of parameter names to train, such as "*.indexer.*"; the others are frozen; none: all train',
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
        "auto", description="torch.compile for every block by itself; auto: on a GPU only"
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

    counts_tokens: ClassVar[bool] = False  # whether a schedule may be written in tokens

    @model_validator(mode="after")
    def _schedule_fits(self) -> Self:
        counted = any(piece.until_tokens is not None for piece in self.schedule.pieces)
        if counted and not self.counts_tokens:
            raise ValueError("until_tokens: this stage does not know its tokens in advance; use until")
        if not counted:
            check_schedule(self.schedule, self.steps)
        return self

    @property
    def step_tokens(self) -> int | None:
        """The most tokens that a step can have; None where the options do not say."""
        return None


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


class PretrainConfig(LanguageConfig):
    """Pre-training, mid-training and context extension: next-token prediction on token shards."""

    counts_tokens: ClassVar[bool] = True
    how: ClassVar[frozenset[str]] = TrainingConfig.how | {"verify_shards"}

    steps: int = Field(gt=0, description="optimizer steps", json_schema_extra={"instead": "tokens"})
    model: ModelConfig | None = Field(None, description="the model to start; null to go on from the input checkpoint")
    from_step: int | None = Field(
        None,
        gt=0,
        description="go on from the checkpoint that the input stage kept at this step (its checkpoints.keep_every), not from "
        "its last",
    )
    keep_optimizer: bool = Field(
        False, description="begin with the optimizer's state of that checkpoint too (a re-decay); needs from_step"
    )
    tokens: Tokens | None = Field(None, gt=0, description="tokens to train on, such as 11.2T, instead of `steps`")
    batch_tokens: Tokens = Field(gt=0, description="tokens in one optimizer step (a multiple of sequence_length)")
    batch_warmup: BatchWarmupConfig | None = Field(None, description="smaller batches at the start; null for none")
    phases: tuple[Phase, ...] = Field(min_length=1, description="data mixtures in order; the last one ends at 1")
    packing: Literal["split", "best_fit", "greedy"] = Field(
        "split",
        description="rows of the token stream, cut anywhere; whole documents, best fit decreasing; or whole documents in order",
    )
    verify_shards: bool = Field(
        True,
        description="read all shards at every start and compare their checksums; set it to false for terabytes: sizes are "
        "compared, and ids checked when they are read, all the same",
    )
    rope_base: float | None = Field(None, gt=1, description="new θ of the rotary positions, to extend the context")
    rope_scaling: Scaling | None = Field(
        None,
        description="new scaling of the rotary positions (YaRN …) in layers that see the whole text; null: as it was",
    )
    multi_token_weight: float | None = Field(
        None, ge=0, description="new weight λ of multi-token prediction; null: the model's"
    )
    bias_rate: float | None = Field(
        None, ge=0, description="new rate γ of the balancers that move routers' selection biases; null: the model's"
    )
    validate_every: int = Field(50, gt=0, description="steps between validations")
    validation_rows: int = Field(64, gt=0, description="rows of validation text that are scored")

    @model_validator(mode="before")
    @classmethod
    def _steps_of_tokens(cls, data: Any) -> Any:
        data = tuples(data)  # what passes through here is validated as Python values, not as JSON
        if not isinstance(data, Mapping) or data.get("tokens") is None:
            return data
        try:
            steps = _Amount.model_validate(data).steps
        except ValueError:  # the fields' own checks name the problem
            return {"steps": 1, **data}
        if data.get("steps") not in (None, steps):
            raise ValueError(
                f"steps ({data['steps']}) and tokens ({data['tokens']}) are two lengths of one run; the tokens are {steps} "
                "steps: leave one of them out"
            )
        return {**data, "steps": steps}

    @model_validator(mode="after")
    def _consistent(self) -> PretrainConfig:
        if self.keep_optimizer and self.from_step is None:
            raise ValueError("keep_optimizer needs from_step: the last checkpoint of a finished stage has weights only")
        long = [name for phase in self.phases for name in phase.weights if "@" in name]
        if long and self.packing == "split":
            raise ValueError(
                f"{long[0]} chooses documents by length, and rows cut from the stream know none: set packing to best_fit"
            )
        if self.model is not None and self.from_step is not None:
            raise ValueError(
                "from_step goes on from an input checkpoint, model starts a new one: leave one of them out"
            )
        sizes = self.batch_sizes
        ends = [
            sizes.steps_for(phase.until_tokens) / self.steps if phase.until_tokens is not None else phase.until
            for phase in self.phases
        ]
        known = [share for share in ends if share is not None]  # the others wait for a plateau
        if self.phases[-1].plateau is not None:
            raise ValueError("the last phase has no next one that a plateau could lead to: let it end at 1")
        windows = [
            phase.plateau.window
            for phase, end in zip(self.phases, ends, strict=True)
            if phase.plateau is not None and end is None  # one with an end comes there without a plateau too
        ]
        if windows and self.steps // self.validate_every <= max(windows):
            raise ValueError(
                f"a plateau needs {max(windows) + 1} validations (window + 1), and {self.steps} steps have "
                f"{self.steps // self.validate_every}: lower validate_every ({self.validate_every})"
            )
        if known != sorted(set(known)) or known[-1] != 1:
            raise ValueError(f"phases must end at rising shares of the steps, the last at 1; they end at {known}")
        check_schedule(self.schedule_in_steps, self.steps)
        return self

    @property
    def step_tokens(self) -> int:
        """The tokens of a step, once a warm-up of the batch is over."""
        return self.batch_tokens

    @property
    def batch_sizes(self) -> BatchSizes:
        """How many rows each step has."""
        return BatchSizes(self.batch_tokens, self.sequence_length, self.batch_warmup)

    @property
    def schedule_in_steps(self) -> ScheduleConfig:
        """The schedule without token counts."""
        return schedule_in_steps(self.schedule, self.steps, self.batch_sizes.steps_for)

    @property
    def total_tokens(self) -> int:
        """The positions in the rows of all steps."""
        return self.batch_sizes.tokens_before(self.steps)


class _Amount(BaseModel):
    """The part of a PretrainConfig that says how many steps its tokens are."""

    tokens: Tokens = Field(gt=0)
    batch_tokens: Tokens = Field(gt=0)
    sequence_length: int = Field(gt=1)
    batch_warmup: BatchWarmupConfig | None = None

    @property
    def steps(self) -> int:
        return BatchSizes(self.batch_tokens, self.sequence_length, self.batch_warmup).steps_for(self.tokens)
