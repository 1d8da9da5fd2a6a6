"""What the files of a run hold, as typed records.

The formats are the contracts between rooms; a record names the fields that the report uses and ignores the others, so
that a stage may write more than is shown. A verdict keeps its unknown fields: they are the numbers behind a claim.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator


class FileRow(BaseModel):
    """A row of a file. Unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class FunnelStep(FileRow):
    """One step of curation: what came in and what went out. `select` and `read` begin with files, not documents."""

    step: str
    documents_in: int
    documents_out: int
    bytes_in: int
    bytes_out: int
    tokens_in: int | None = None  # estimated from bytes
    tokens_out: int | None = None
    seconds: float | None = None  # processor time of all workers together
    reasons: dict[str, int] = Field(default_factory=dict)
    repaired: dict[str, int] = Field(default_factory=dict)
    bytes_cut: int = 0  # out of texts that stayed


class RemovedDocument(FileRow):
    """A sample of what a curation step removed, and why."""

    id: str
    step: str
    rule: str = ""
    reason: str = ""
    source: str = ""
    text: str = ""
    bytes: int | None = None
    duplicate_of: str | None = None
    duplicate_text: str | None = None
    skipped: int = 0  # characters before what is shown
    spans: list[tuple[int, int]] = Field(default_factory=list)


class RewrittenDocument(FileRow):
    """A sample of what a step made of a text, both shown from the same place."""

    id: str
    step: str
    source: str = ""
    before: str
    after: str
    skipped: int = 0  # characters before what is shown


class ReadProblem(FileRow):
    """A file, record or row that could not be read unchanged; `kept` if it became a document anyway."""

    place: str
    rule: str
    detail: str = ""
    text: str = ""
    kept: bool = False


class EvalSet(FileRow):
    """What was found of one eval set in the documents."""

    evals: int
    searched: int
    found: int
    documents: int


class Decontamination(FileRow):
    """A step's search for evals: by set, and the texts of the evals found, by `set:id`."""

    documents: int
    removed: int
    sets: dict[str, EvalSet]
    texts: dict[str, str] = Field(default_factory=dict)


class Banding(FileRow):
    """A step's MinHash: its S-curve, and counts of how alike the removed are to what stayed, in equal parts of 0 to 1."""

    bands: int
    rows: int
    shingles: str = ""
    size: int | None = None
    min_jaccard: float | None = None
    knee: float
    similarities: list[int] = Field(default_factory=list)


class ScoreRow(FileRow):
    """One number of an evaluation with its standard error."""

    value: float
    standard_error: float | None = None
    count: int | None = None
    clusters: int | None = None
    interval: list[float | None] | None = None  # of 95 %
    higher_is_better: bool = True
    label: str | None = None
    chance: float | None = None
    held_out: bool = True


class ChoiceRow(FileRow):
    """Which step a choose stage took, and by what."""

    metric: str
    step: int


class GenerationRow(FileRow):
    """One answer of a model to one task of an evaluation."""

    task_id: str
    kind: str = ""
    prompt: str = ""
    completion: str = ""
    expected: str | None = None
    correct: bool | None = None

    @field_validator("task_id", "expected", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        """Numeric answers and ids are shown as they are written."""
        return value if value is None or isinstance(value, str) else str(value)


class RolloutNode(FileRow):
    """One message of a rollout: its tokens, and for sampled ones the numbers of post/rl/trajectories.py."""

    role: str = ""
    pieces: list[str] = Field(default_factory=list)
    sampled: bool = False
    ended: str = ""
    rewards: dict[str, float] = Field(default_factory=dict)
    advantages: list[float | None] = Field(default_factory=list)
    logprobs: list[float | None] = Field(default_factory=list)
    old_logprobs: list[float | None] = Field(default_factory=list)
    entropies: list[float | None] = Field(default_factory=list)
    versions: list[int | None] = Field(default_factory=list)

    @field_validator("advantages", "logprobs", "old_logprobs", "entropies", "versions", mode="before")
    @classmethod
    def _none_is_empty(cls, value: Any) -> Any:
        return [] if value is None else value


class Rollout(FileRow):
    """One episode that a policy was trained on."""

    step: int
    task_id: str = ""
    kind: str = ""
    prompt: str = ""
    reward: float | None = None
    rewards: dict[str, float] = Field(default_factory=dict)
    correct: bool | None = None
    format_ok: bool | None = None
    ended: str = ""
    error: str | None = None
    group: int | None = None
    group_size: int | None = None
    nodes: list[RolloutNode] = Field(default_factory=list)

    @field_validator("task_id", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        return value if isinstance(value, str) else str(value)


class Claim(BaseModel):
    """A claim of the recipe about its result; the extra fields are the numbers behind it."""

    model_config = ConfigDict(extra="allow", frozen=True)

    claim: str = Field(validation_alias=AliasChoices("claim", "label", "name", "text"))
    held: bool | None = Field(default=None, validation_alias=AliasChoices("held", "passed", "ok"))


@dataclass
class StageRecord:
    """Everything that a stage wrote. What is missing is None or empty, and named in `missing`."""

    name: str
    kind: str
    status: str
    seconds: float | None = None
    bytes: int | None = None
    folder: str | None = None
    finished: float | None = None
    inputs: dict[str, list[str]] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    config: str | None = None
    metrics: list[dict[str, Any]] = field(default_factory=list)
    funnel: list[FunnelStep] = field(default_factory=list)
    removed: list[RemovedDocument] = field(default_factory=list)
    rewritten: list[RewrittenDocument] = field(default_factory=list)
    read_problems: list[ReadProblem] = field(default_factory=list)
    decontaminations: dict[str, Decontamination] = field(default_factory=dict)  # by step
    bandings: dict[str, Banding] = field(default_factory=dict)  # by step
    kept: list[dict[str, Any]] = field(default_factory=list)  # samples, with all their columns
    tokenizer: dict[str, Any] | None = None
    scores: dict[str, ScoreRow] = field(default_factory=dict)
    units: dict[str, dict[str, float]] = field(default_factory=dict)
    clusters: dict[str, dict[str, str]] = field(default_factory=dict)
    history: dict[int, dict[str, ScoreRow]] = field(default_factory=dict)  # scores of kept checkpoints, by step
    choice: ChoiceRow | None = None
    generations: list[GenerationRow] = field(default_factory=list)
    rollouts: list[Rollout] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    panel: dict[str, Any] = field(default_factory=dict)  # of a kind that shows more than all stages do


@dataclass
class RunRecord:
    """A run: its stages in order, and what could not be read."""

    name: str
    seed: int | None
    date: float | None
    recipe: str | None
    version: str | None
    stages: list[StageRecord]
    problems: list[str]
