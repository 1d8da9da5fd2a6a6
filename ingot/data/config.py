"""Configuration of the `curate` stage: where raw text comes from, and the list of steps it walks through.

A step is written as `{step: NAME, threshold: …}`; a step with no other key uses the published thresholds. Steps run in
the order they are listed. Their options are declared in the config.py of each room below this one (rules/, classify/,
code/, dedup/, decontaminate/, extract/, upsample/ …), the options of sources in read/config.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from ingot.data.classify.config import (
    ClassifyStep,
    EnglishStep,
    LanguageStep,
    QualityStep,
    SafetyStep,
    SplitStep,
    VentilesStep,
)
from ingot.data.code.config import CodeLanguageStep, CodeRulesStep, LicenceStep
from ingot.data.decontaminate.config import DecontaminateStep
from ingot.data.dedup.config import ExactDedupStep, NearDedupStep, SemanticDedupStep
from ingot.data.dedup.substring_config import SubstringDedupStep
from ingot.data.extract.config import ExtractHtmlStep, FixTextStep, NormaliseStep
from ingot.data.read.config import BASE_COLUMNS, PythonSource, Source
from ingot.data.rules.config import (
    BadWordsStep,
    C4Step,
    CompressionRatioStep,
    FineWebStep,
    GopherQualityStep,
    GopherRepetitionStep,
    LengthStep,
    LineModifiersStep,
    MadladStep,
    NewlinesStep,
    PiiStep,
    RepeatedNgramsStep,
    UrlFilterStep,
)
from ingot.data.step import Step
from ingot.data.upsample.config import UpsampleStep
from ingot.workspace.config import Config

ExtractSteps = ExtractHtmlStep | FixTextStep | NormaliseStep
GopherSteps = GopherQualityStep | GopherRepetitionStep
WebSteps = FineWebStep | C4Step | LineModifiersStep | MadladStep | UrlFilterStep | BadWordsStep
FormSteps = LengthStep | NewlinesStep | RepeatedNgramsStep | CompressionRatioStep | PiiStep
KindSteps = SplitStep | EnglishStep | LanguageStep
ScoreSteps = QualityStep | ClassifyStep | VentilesStep | SafetyStep
CodeSteps = CodeRulesStep | CodeLanguageStep | LicenceStep
CopySteps = ExactDedupStep | NearDedupStep | SubstringDedupStep | SemanticDedupStep
LastSteps = DecontaminateStep | UpsampleStep

Step = Annotated[
    ExtractSteps | GopherSteps | WebSteps | FormSteps | KindSteps | ScoreSteps | CodeSteps | CopySteps | LastSteps,
    Field(discriminator="step"),
]


def default_steps() -> list[Step]:
    """The published thresholds in the usual order: cheap steps first. Decontamination needs the evals: add it."""
    return [
        SplitStep(),
        ExactDedupStep(keep="longest"),
        GopherQualityStep(where={"kind": "prose"}),
        EnglishStep(where={"kind": "prose"}),
        GopherRepetitionStep(where={"kind": "prose"}),
        CodeRulesStep(where={"kind": "code"}),
        NearDedupStep(),
        QualityStep(),
    ]


class CurateConfig(Config):
    """Raw text to clean documents."""

    how: ClassVar[frozenset[str]] = frozenset(
        {"engine", "ray_address", "workers", "stall_seconds", "work_folder", "keep_work", "check_work", "copy_to"}
    )

    sources: list[Source] = Field(default=[PythonSource()], min_length=1, description="where the raw text comes from")
    max_bytes: int | None = Field(
        default=None,
        gt=0,
        description="budget of raw bytes (null: everything); each source in turn gets an equal share of what is left. "
        "Files are taken in the order of the hash of their relative path; prose and Python files get half of it each",
    )
    steps: list[Step] = Field(default_factory=default_steps, description="what the documents walk through, in order")
    samples: int = Field(default=40, ge=0, description="removed documents shown in the report, per step; all are kept")
    on_duplicate_id: Literal["stop", "rename"] = Field(
        default="stop", description="two documents with the same id: `stop`, or `rename` all but the first (ID~2, ID~3)"
    )

    engine: Literal["local", "ray"] = Field(
        default="local", description="`local`: processes of this machine; `ray`: the same tasks on a Ray cluster"
    )
    ray_address: str | None = Field(
        default=None, description="address of the Ray cluster, or `auto`; null starts one on this machine"
    )
    workers: int | None = Field(default=None, ge=1, description="processes (null: one for each processor)")
    stall_seconds: float = Field(
        default=3600, gt=0, description="the run ends with an error if no task is finished for so long"
    )
    work_folder: str | None = Field(
        default=None,
        description="where intermediate results are kept and found again (null: `curation` in the run's folder); with Ray "
        "a folder that all machines see",
    )
    keep_work: bool = Field(
        default=True, description="keep the intermediate results, so that a changed threshold computes nothing again"
    )
    check_work: Literal["size", "content"] = Field(
        default="size", description="how intermediate results are checked before they are used again"
    )
    copy_to: str | None = Field(
        default=None, description="copy documents and removed documents there when all is done: a path or fsspec URL"
    )

    @model_validator(mode="after")
    def _source_names(self) -> CurateConfig:
        names = [source.name for source in self.sources]
        for name in names:
            if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name) or name == "validation":
                raise ValueError(
                    f"source name {name!r} cannot name a folder of token shards: use lower-case letters, digits, "
                    "`.`, `_` and `-`, and not `validation`"
                )
        if len(set(names)) < len(names):
            raise ValueError(f"two sources have the same name: give each its own `name` ({', '.join(names)})")
        return self

    @model_validator(mode="after")
    def _columns_exist(self) -> CurateConfig:
        known = set(BASE_COLUMNS).union(*(source.columns() for source in self.sources))
        check_columns(self.steps, known)
        return self

    def outside(self) -> dict[str, str]:
        """The files of the sources and of the steps, and the versions of the installed packages if those are read."""
        from ingot.data.ingest import fingerprints

        found: dict[str, str] = {}
        for source in self.sources:
            found |= fingerprints(source)
        for step in self.steps:
            found |= step.outside()
        return found


def check_columns(steps: Sequence[Step], known: set[str]) -> None:
    """Raise if a step reads a column that neither the sources have nor an earlier step writes."""
    there = set(known)
    for number, step in enumerate(steps):
        for name in step.reads():
            if name in there:
                continue
            later = [other.step for other in steps[number:] if name in other.writes()]
            fix = f"step `{later[0]}` writes it: put that first" if later else f"there are: {', '.join(sorted(there))}"
            raise ValueError(
                f"step `{step.step}` (number {number + 1}) reads the column `{name}`, which no source has and no "
                f"earlier step writes; {fix}"
            )
        there |= set(step.writes())


def labels(steps: Sequence[Step]) -> list[str]:
    """A name for each step: its own, with a number if it is there again."""
    names: list[str] = []
    for step in steps:
        earlier = sum(name == step.step or name.startswith(f"{step.step} ") for name in names)
        names.append(f"{step.step} {earlier + 1}" if earlier else step.step)
    return names
