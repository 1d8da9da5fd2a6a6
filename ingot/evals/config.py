"""What is measured after a stage, and which claims about the numbers must hold at the end of a recipe."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator, model_validator

from ingot.envs.config import Kind, TasksConfig
from ingot.workspace.config import Config

UNIGRAM, UNIGRAM_TOKEN = "unigram", "unigram_token"
# what a claim may compare bits_per_byte with, and the metric that holds it
BASELINES = {UNIGRAM: "unigram_bits_per_byte", UNIGRAM_TOKEN: "unigram_token_bits_per_byte"}


class TaskSuiteConfig(Config):
    """Held-out tasks of one kind."""

    kind: Kind = Field(description="the task kind")
    count: int = Field(64, ge=2, description="how many held-out tasks; the standard error is over tasks")
    samples: int = Field(1, ge=1, description="samples per task (k of avg@k)")


class NeedleConfig(Config):
    """Retrieval: a number stated somewhere in a text must be known at its end."""

    lengths: tuple[int, ...] = Field((256, 512), min_length=1, description="tokens of the whole text, one score each")
    depths: tuple[float, ...] = Field(
        (0.1, 0.5, 0.9), min_length=1, description="where the number stands, as a share of the text"
    )
    count: int = Field(8, ge=1, description="texts for each length and depth")
    candidates: int = Field(8, ge=2, le=64, description="numbers that the right one is compared with, itself included")
    digits: int = Field(5, ge=2, le=9, description="digits of the number")

    @field_validator("depths")
    @classmethod
    def _shares(cls, depths: tuple[float, ...]) -> tuple[float, ...]:
        if any(not 0 <= depth <= 1 for depth in depths):
            raise ValueError("a depth is a share between 0 and 1")
        return depths

    @field_validator("lengths")
    @classmethod
    def _long_enough(cls, lengths: tuple[int, ...]) -> tuple[int, ...]:
        if any(length < 96 for length in lengths) or len(set(lengths)) != len(lengths):
            raise ValueError("lengths are distinct, and 96 tokens or more: the two sentences need room")
        return lengths


class EvalConfig(Config):
    """Measure a checkpoint: verifiable tasks, bits per byte, needle retrieval, sample generations."""

    tasks: tuple[TaskSuiteConfig, ...] = Field(
        (
            TaskSuiteConfig(kind="arithmetic"),
            TaskSuiteConfig(kind="strings"),
            TaskSuiteConfig(kind="calculator", count=32),
            TaskSuiteConfig(kind="no_think", count=32),
        ),
        description="task suites; empty to measure none",
    )
    difficulty: TasksConfig = Field(TasksConfig(), description="how hard each task kind is: as in training, or harder")
    temperature: float = Field(0.0, ge=0, description="sampling temperature of the tasks; 0 is greedy")
    top_p: float = Field(1.0, gt=0, le=1, description="nucleus sampling of the tasks")
    max_new_tokens: int = Field(96, ge=1, description="tokens of one turn at most")
    max_tokens: int = Field(384, ge=1, description="tokens of a whole conversation at most, with its prompt")
    max_turns: int = Field(3, ge=1, description="assistant turns of one task at most")
    slots: int = Field(64, ge=1, description="conversations that are sampled together")
    bits_per_byte: bool = Field(True, description="measure bits per byte on the validation shard")
    validation_rows: int = Field(32, ge=2, description="rows of validation text that are scored")
    sequence_length: int = Field(256, ge=2, description="tokens of a validation row")
    needle: NeedleConfig | None = Field(NeedleConfig(), description="needle retrieval; null to leave it out")
    prompts: tuple[str, ...] = Field((), description="texts that the model continues, kept as samples for the report")
    prompt_tokens: int = Field(48, ge=1, description="tokens of each continuation")
    kept_samples: int = Field(12, ge=0, description="task replies per kind that are kept in samples.jsonl")
    task_seed: int = Field(
        0, description="which held-out tasks and texts; the same for all stages, so that they are compared on the same"
    )
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="auto: the GPU if there is one")

    @model_validator(mode="after")
    def _consistent(self) -> EvalConfig:
        kinds = [suite.kind for suite in self.tasks]
        if len(set(kinds)) != len(kinds):
            raise ValueError("a task kind is listed twice")
        if self.temperature == 0 and any(suite.samples > 1 for suite in self.tasks):
            raise ValueError("several samples per task need a temperature above 0: greedy samples are all the same")
        return self


class ClaimConfig(Config):
    """One claim: a metric of a stage is above (or below) another stage's, a number, or a baseline.

    The baselines of bits_per_byte: `unigram` (byte frequencies), `unigram_token` (token frequencies).
    """

    metric: str = Field(description="a metric of scores.json, such as accuracy/arithmetic or bits_per_byte")
    stage: str = Field(description="the evaluated stage that the claim is about")
    above: float | str | None = Field(None, description="what it must be above: a stage, a number, or a baseline")
    below: float | str | None = Field(None, description="what it must be below: a stage, a number, or a baseline")
    by: float = Field(0.0, ge=0, description="by at least this much")
    sigmas: float = Field(
        1.0, ge=0, description="and by more than this many standard errors of the difference beyond it"
    )

    @model_validator(mode="after")
    def _one_side(self) -> ClaimConfig:
        if (self.above is None) == (self.below is None):
            raise ValueError("a claim says either above or below")
        if self.reference in BASELINES and self.metric != "bits_per_byte":
            raise ValueError(f"{self.reference} is a baseline of bits_per_byte, not of {self.metric}")
        return self

    @property
    def reference(self) -> float | str:
        """What the metric is compared with."""
        reference = self.above if self.above is not None else self.below
        assert reference is not None  # one of them is set: checked when the claim was made
        return reference

    @property
    def reference_stage(self) -> str | None:
        """The stage that it is compared with, if it is a stage."""
        reference = self.reference
        return reference if isinstance(reference, str) and reference not in BASELINES else None

    @property
    def sign(self) -> int:
        """+1 if larger is claimed, -1 if smaller."""
        return 1 if self.above is not None else -1


class VerdictConfig(Config):
    """The claims that a recipe makes about its result; the stage fails when one does not hold."""

    claims: tuple[ClaimConfig, ...] = Field(min_length=1, description="what must be true of the scores")
