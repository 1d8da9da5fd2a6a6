"""Configuration of the `curate` stage: where raw text comes from, and the list of steps it passes through.

A step is written as `{step: NAME, threshold: …}`; a step with no other key uses the published thresholds. Steps run in
the order they are listed. A step is a file of steps/, or one from outside (outside.py); the options of sources are in
read/config.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from ingot.data.outside import STEPS
from ingot.data.read.config import BASE_COLUMNS, PythonSource, Source
from ingot.data.step import Step
from ingot.workspace.config import Config

AnyStep = Annotated[Step, STEPS]


def default_steps() -> list[Step]:
    """The published thresholds in the usual order: cheap steps first. Decontamination needs the evals: add it."""
    prose: dict[str, Any] = {"where": {"kind": "prose"}}
    entries: list[dict[str, Any]] = [
        {"step": "extract_html"},
        {"step": "split"},
        {"step": "exact_dedup", "keep": "longest"},
        {"step": "gopher_quality", **prose},
        {"step": "english", **prose},
        {"step": "gopher_repetition", **prose},
        {"step": "code_rules", "where": {"kind": "code"}},
        {"step": "near_dedup"},
        {"step": "quality"},
    ]
    return [STEPS.read(entry) for entry in entries]


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
    steps: list[AnyStep] = Field(
        default_factory=default_steps, description="the steps that the documents pass through, in order"
    )
    samples: int = Field(
        default=40, ge=0, description="removed documents shown in the report, per step; all are in removed/"
    )
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
        description="where intermediate results are stored and found again (null: `curation` in the run's folder); with Ray "
        "a folder that all machines see",
    )
    keep_work: bool = Field(
        default=True,
        description="do not delete the intermediate results, so that a changed threshold computes nothing again",
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
    def _cluster(self) -> CurateConfig:
        if self.engine != "ray":
            self.refuse("ray_address", because=f"engine: {self.engine} asks no cluster", instead="set engine: ray")
        return self

    @model_validator(mode="after")
    def _columns_exist(self) -> CurateConfig:
        known = set(BASE_COLUMNS).union(*(source.columns() for source in self.sources))
        check_columns(self.steps, known)
        return self

    def outside(self) -> dict[str, str]:
        """The files of the sources and of the steps, and the versions of the installed packages if those are read."""
        from ingot.data.read.plan import fingerprints

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
            later = [other.short_name for other in steps[number:] if name in other.writes()]
            fix = f"step `{later[0]}` writes it: put that first" if later else f"there are: {', '.join(sorted(there))}"
            raise ValueError(
                f"step `{step.short_name}` (number {number + 1}) reads the column `{name}`, which no source has and no "
                f"earlier step writes; {fix}"
            )
        there |= set(step.writes())


def labels(steps: Sequence[Step]) -> list[str]:
    """A name for each step: its own, with a number if the step is repeated."""
    names: list[str] = []
    for step in steps:
        own = step.short_name
        earlier = sum(name == own or name.startswith(f"{own} ") for name in names)
        names.append(f"{own} {earlier + 1}" if earlier else own)
    return names
