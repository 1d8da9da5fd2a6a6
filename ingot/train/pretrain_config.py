"""Options of pre-training. They hold a model, whose parts are modules (model/config.py): importing this imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field, ModelWrapValidatorHandler, model_validator

from ingot.model.config import ModelConfig
from ingot.model.mixers.indexer import SparseConfig
from ingot.model.positions.scaling import AnyScaling
from ingot.model.presets.data import tuples
from ingot.optim.batch_size import BatchSizes
from ingot.optim.config import BatchWarmupConfig, ScheduleConfig, Tokens
from ingot.optim.schedule import check_schedule, schedule_in_steps
from ingot.train.config import LanguageConfig, Phase, TrainingConfig
from ingot.train.new_model import check_written


class PretrainConfig(LanguageConfig):
    """Pre-training, mid-training and context extension: next-token prediction on token shards."""

    counts_tokens: ClassVar[bool] = True
    validates: ClassVar[bool] = True
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
    rope_scaling: AnyScaling | None = Field(
        None,
        description="new scaling of the rotary positions (YaRN …) in layers that see the whole text; null: as it was",
    )
    multi_token_weight: float | None = Field(
        None, ge=0, description="new weight λ of multi-token prediction; null: the model's"
    )
    bias_rate: float | None = Field(
        None, ge=0, description="new rate γ of the balancers that move routers' selection biases; null: the model's"
    )
    sparse: SparseConfig | None = Field(
        None,
        description="DSA in every block with latent attention, with new indexers where the model has none; a later stage may "
        "change keep, loss and stage; null: the model's",
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

    @model_validator(mode="wrap")
    @classmethod
    def _model_acts(cls, data: Any, handler: ModelWrapValidatorHandler[PretrainConfig]) -> PretrainConfig:
        config = handler(data)
        if isinstance(data, Mapping) and isinstance(data.get("model"), Mapping):
            check_written(data["model"], config.sequence_length)
        return config

    @model_validator(mode="after")
    def _consistent(self) -> PretrainConfig:
        if self.keep_optimizer and self.from_step is None:
            raise ValueError("keep_optimizer needs from_step: the last checkpoint of a finished stage has weights only")
        if self.sparse is not None and self.lora is not None:
            raise ValueError(
                "lora: adapters are kept without the weights beside them, and sparse may add some; leave one out"
            )
        long = [name for phase in self.phases for name in phase.weights if "@" in name]
        if long and self.packing == "split":
            raise ValueError(
                f"{long[0]} chooses documents by length, and rows cut from the stream know none: set packing to best_fit"
            )
        if self.model is not None and self.from_step is not None:
            raise ValueError(
                "from_step goes on from an input checkpoint, model starts a new one: leave one of them out"
            )
        parts = [] if self.model is None else [block.mixer for block in self.model.blocks.values()]
        idle = [mixer.untrained for mixer in parts if mixer is not None and mixer.untrained]
        if idle:
            raise ValueError(f"{idle[0]}, so it would stay random in a new model")
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
