"""What is measured after a stage, and which claims about the numbers must hold at the end of a recipe."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ingot.data.synthesize.config import EndpointConfig
from ingot.evals.bases.suite import Suite
from ingot.evals.bases.suites import SUITES
from ingot.workspace.config import Config

LONGEST = 32_768  # tokens of a conversation, where neither the recipe nor the model says less
UNIGRAM, UNIGRAM_TOKEN = "unigram", "unigram_token"
# what a claim may compare bits_per_byte with, and the metric that holds it
BASELINES = {UNIGRAM: "unigram_bits_per_byte", UNIGRAM_TOKEN: "unigram_token_bits_per_byte"}

OF_WEIGHTS = "device", "precision", "tensor", "slots", "every"  # options of what is measured in this process
SIDES = "above", "below", "not_above", "not_below"  # of a claim


class EvalConfig(Config):
    """Measure a checkpoint with suites."""

    moved: ClassVar[Mapping[str, str]] = {
        "tasks": "suites: [{suite: tasks, kinds: [{kind: arithmetic, count: 64}]}]",
        "bits_per_byte": "suites: [{suite: bits_per_byte}]",
        "needle": "suites: [{suite: needle, lengths: [256, 512]}]",
        "prompts": "suites: [{suite: continuations, texts: [...]}]",
        "prompt_tokens": "suites: [{suite: continuations, tokens: ...}]",
        "validation_rows": "suites: [{suite: bits_per_byte, rows: ...}]",
        "sequence_length": "suites: [{suite: bits_per_byte, sequence_length: ...}]",
        **{
            key: f"suites: [{{suite: tasks, {key}: ...}}]"
            for key in ("difficulty", "temperature", "top_p", "max_new_tokens", "max_turns", "kept_samples")
        },
    }

    how: ClassVar[frozenset[str]] = frozenset({"tensor"})

    suites: tuple[Annotated[Suite, SUITES], ...] = Field(
        ("tasks", "bits_per_byte", "needle"),  # type: ignore[arg-type]  # read by their names
        min_length=1,
        description="what is measured: names of suites, or mappings of a suite and its options",
    )
    form: Literal["auto", "text", "chat"] = Field(
        "auto", description="how questions reach the model; auto: a conversation if its tokenizer has a chat template"
    )
    thinking: Literal["task", "on", "off", "both"] = Field(
        "task",
        description="whether a chat model thinks first; task: unless a task says otherwise; both: suites that let it think are "
        "measured both ways",
    )
    limit: int | None = Field(
        None,
        ge=1,
        description="questions of each suite at most, the first ones; rows, texts, or tasks of each kind, category or length",
    )
    every: int | None = Field(
        None,
        ge=1,
        description="measure also the checkpoints of every so many steps that the training stage before it keeps",
    )
    data: str = Field("", description="folder with data sets, each in a folder of its own (default: INGOT_DATA)")
    endpoint: EndpointConfig | None = Field(
        None, description="a server with OpenAI's API whose model is measured instead of a checkpoint"
    )
    tokenizer: str = Field("", description="folder of the tokenizer, for suites that count tokens of a server's model")
    max_tokens: int | None = Field(
        None,
        ge=2,
        description=f"tokens of a whole conversation at most; null: the model's context, at most {LONGEST:,}",
    )
    slots: int = Field(64, ge=1, description="conversations that are sampled together")
    task_seed: int = Field(
        0, description="which held-out tasks and texts; the same for all stages, so that they are compared on the same"
    )
    remember: bool = Field(True, description="keep answers by model, prompt and sampling: nothing is computed twice")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto: the GPU if there is one")
    tensor: int = Field(1, gt=0, description="devices over which the model is divided by tensor parallelism")
    precision: Literal["auto", "float32", "bfloat16"] = Field(
        "auto", description="of the weights; auto: bfloat16 on a GPU, float32 on a CPU"
    )

    def outside(self) -> dict[str, str]:
        """The files that suites read."""
        return {name: found for suite in self.suites for name, found in suite.outside().items()}

    def supplies(self) -> frozenset[str]:
        """A server is measured instead of a checkpoint."""
        return frozenset() if self.endpoint is None else frozenset({"checkpoint"})

    def unfit(self, inputs: Collection[str]) -> Iterator[str]:
        """Scores have the name of the checkpoint in inputs: they must be its own."""
        if "checkpoint" in inputs and self.endpoint is not None:
            yield "endpoint: the server is measured, not the checkpoint in inputs: leave one of them out"
        elif "checkpoint" in inputs and self.tokenizer:
            yield "tokenizer: a checkpoint is measured with its own: leave it out"

    @model_validator(mode="after")
    def _suites_take_it(self) -> Self:
        """The form and the way of thinking: a suite that cannot be asked so, or a list of which none can, is an error."""
        names = ", ".join(suite.suite for suite in self.suites)
        if self.form != "auto":
            if not any(suite.forms for suite in self.suites):
                raise ValueError(f"form: {names}: none of them asks questions; leave it out")
            if only := [suite.suite for suite in self.suites if suite.forms and self.form not in suite.forms]:
                raise ValueError(f"form: {only[0]} is always asked in a conversation; leave one of them out")
        if self.thinking != "task":
            if self.form == "text":
                raise ValueError("thinking: a plain text has none; leave it out, or write form: chat")
            if not any(suite.can_think for suite in self.suites):
                raise ValueError(f"thinking: {names}: none of them lets the model think; leave it out")
        return self

    @model_validator(mode="after")
    def _fits_a_server(self) -> Self:
        if self.endpoint is not None and (given := self.chosen(*OF_WEIGHTS)):
            raise ValueError(f"{', '.join(given)}: a server is measured, whose weights are not here: leave it out")
        return self


class ChooseConfig(Config):
    """Which of the checkpoints that an eval stage has measured is taken."""

    metric: str = Field(description="the metric that decides, such as hellaswag/accuracy")
    best: Literal["auto", "max", "min"] = Field(
        "auto", description="auto: the metric's own direction (higher or lower is better)"
    )
    patience: int | None = Field(
        None,
        ge=1,
        description="end the search after this many measurements in a row without improvement, as early stopping does",
    )
    min_improvement: float = Field(0.0, ge=0, description="smallest change that counts as an improvement")


class ClaimConfig(Config):
    """One claim: a metric of a stage is above (or below) another stage's, a number, or a baseline; or it is not, as of a control.

    The baselines of bits_per_byte: `unigram` (byte frequencies), `unigram_token` (token frequencies).
    """

    metric: str = Field(description="a metric of scores.json, such as accuracy/arithmetic or bits_per_byte")
    stage: str = Field(description="the evaluated stage that the claim is about")
    above: float | str | None = Field(None, description="what it must be above: a stage, a number, or a baseline")
    below: float | str | None = Field(None, description="what it must be below: a stage, a number, or a baseline")
    not_above: float | str | None = Field(
        None, description="what it must not be above by the same measure: the claim `above` with these numbers fails"
    )
    not_below: float | str | None = Field(
        None, description="what it must not be below by the same measure: the claim `below` with these numbers fails"
    )
    by: float = Field(0.0, ge=0, description="by at least this much")
    sigmas: float = Field(
        1.0, ge=0, description="and by more than this many standard errors of the difference beyond it"
    )

    @model_validator(mode="after")
    def _one_side(self) -> ClaimConfig:
        if sum(getattr(self, side) is not None for side in SIDES) != 1:
            raise ValueError("a claim says either above or below, or not_above or not_below")
        if self.reference in BASELINES and self.metric != "bits_per_byte":
            raise ValueError(f"{self.reference} is a baseline of bits_per_byte, not of {self.metric}")
        return self

    @property
    def reference(self) -> float | str:
        """What the metric is compared with."""
        reference: float | str = getattr(self, self.side)
        return reference

    @property
    def side(self) -> str:
        """Which of SIDES it says; that it is one was checked when the claim was made."""
        return next(side for side in SIDES if getattr(self, side) is not None)

    @property
    def reference_stage(self) -> str | None:
        """The stage that it is compared with, if it is a stage."""
        reference = self.reference
        return reference if isinstance(reference, str) and reference not in BASELINES else None

    @property
    def sign(self) -> int:
        """+1 if larger is claimed or denied, -1 if smaller."""
        return 1 if self.side.endswith("above") else -1

    @property
    def denies(self) -> bool:
        """Whether it claims that there is no such difference."""
        return self.side.startswith("not_")


class VerdictConfig(Config):
    """The claims that a recipe makes about its result; the stage fails when one does not hold."""

    claims: tuple[ClaimConfig, ...] = Field(min_length=1, description="what must be true of the scores")
