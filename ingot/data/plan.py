"""Estimates what a curation will do, before it runs: files, columns, time and disk (`ingot curate C.yaml --dry-run`).

Times come from the measured rates of the steps (`rate`; benchmarks/data.py says what yours are) and assume that nothing
is removed on the way, so they err on the long side. A step without a rate is left out of the sum and said to be.
"""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass
from typing import Any

from ingot.data.config import CurateConfig, labels
from ingot.data.engine.local_pool import available_processors
from ingot.data.ingest import Sources, plan_sources
from ingot.data.read.plan import Unread
from ingot.workspace.progress import format_seconds

READ_RATE = 58  # megabytes of text a second on one core, as `rate` of the steps

# Bytes on disk for a byte of text.
BASE_DISK = 0.45  # the text as it was read, lz4
TEXT_DISK = 0.45  # every step that rewrites it stores another copy
COLUMN_DISK = 0.004  # a column of numbers
RESULT_DISK = 0.30  # documents and removed documents, zstd


@dataclass(frozen=True)
class SourcePlan:
    """What a source gives."""

    name: str
    files: int
    bytes: int
    files_taken: int
    bytes_taken: int
    splits: int
    unread: tuple[Unread, ...]  # files that match and are of a kind that is not read


@dataclass(frozen=True)
class StepPlan:
    """What a step reads and writes, and how long it takes on one core (None: not known)."""

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    across: bool
    seconds: float | None
    says: tuple[str, ...]


@dataclass(frozen=True)
class CurationPlan:
    """Everything that is known beforehand."""

    sources: tuple[SourcePlan, ...]
    steps: tuple[StepPlan, ...]
    workers: int
    engine: str
    bytes: int
    disk_bytes: int

    @property
    def seconds(self) -> float:
        """Estimated time on all workers."""
        return sum(step.seconds or 0.0 for step in self.steps) / self.workers

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return asdict(self) | {"seconds": round(self.seconds, 1)}

    def lines(self, width: int = 200) -> list[str]:
        """For people; columns with a leading underscore, which only later rules see, are counted."""
        lines = [f"{'source':<20}{'files':>20}{'megabytes':>24}{'splits':>8}"]
        for source in self.sources:
            files = f"{source.files_taken:,} of {source.files:,}"
            megabytes = f"{source.bytes_taken / 1e6:,.1f} of {source.bytes / 1e6:,.1f}"
            lines.append(f"{source.name:<20}{files:>20}{megabytes:>24}{source.splits:>8,}")
            lines += [
                f"  {each.kind} is not read: {each.files:,} ({each.bytes:,} bytes), as {each.example}"
                for each in source.unread
            ]
        lines += ["", f"{'step':<20}{'core s':>10}  reads -> writes"]
        for step in self.steps:
            seconds = "not known" if step.seconds is None else f"{step.seconds:,.1f}"
            across = "  (across documents)" if step.across else ""
            lines += indented(
                f"{step.name:<20}{seconds:>10}  ", f"{', '.join(step.reads)} -> {made(step.writes)}{across}", width
            )
            for line in step.says:
                lines += indented(" " * 32, line, width)
        unknown = [step.name for step in self.steps if step.seconds is None]
        without = f", without {', '.join(unknown)}" if unknown else ""
        lines += [
            "",
            f"about {format_seconds(self.seconds)} on {self.workers} workers ({self.engine}){without}; "
            f"about {self.disk_bytes / 1e6:,.0f} MB of disk",
        ]
        return lines


def made(writes: tuple[str, ...]) -> str:
    """Columns as people see them."""
    public = [name for name in writes if not name.startswith("_")]
    inner = len(writes) - len(public)
    return ", ".join([*public, *([f"{inner} inner column{'s' * (inner > 1)}"] if inner else [])]) or "·"


def indented(begin: str, text: str, width: int) -> list[str]:
    """The text in lines of at most `width` characters, under one another after `begin`."""
    lines = textwrap.wrap(text, max(20, width - len(begin)), break_on_hyphens=False, break_long_words=False)
    return [f"{begin if number == 0 else ' ' * len(begin)}{line}" for number, line in enumerate(lines)]


def make_plan(config: CurateConfig) -> CurationPlan:
    """Look at the sources and the steps; reads no document."""
    found = plan_sources(config)
    total = sum(plan.bytes_taken for plan in found.plans)
    return CurationPlan(
        sources=tuple(source_plans(config, found)),
        steps=(read_plan(total), *step_plans(config, total)),
        workers=config.workers or available_processors(),
        engine=config.engine,
        bytes=total,
        disk_bytes=round(total * disk_factor(config)),
    )


def source_plans(config: CurateConfig, found: Sources) -> list[SourcePlan]:
    """A line for each source."""
    return [
        SourcePlan(
            source.name,
            plan.files,
            plan.bytes,
            plan.files - plan.files_left_out,
            plan.bytes_taken,
            len(plan.splits),
            plan.unread,
        )
        for source, plan in zip(config.sources, found.plans, strict=True)
    ]


def read_plan(total: int) -> StepPlan:
    """The line of reading."""
    return StepPlan("read", ("files",), ("id", "text", "source"), False, seconds_for(READ_RATE, total), ())


def step_plans(config: CurateConfig, total: int) -> list[StepPlan]:
    """A line for each step."""
    plans = []
    for name, step in zip(labels(config.steps), config.steps, strict=True):
        reads, writes = tuple(dict.fromkeys(step.reads())), step.writes()
        seconds = seconds_for(step.rate, total)
        plans.append(StepPlan(name, reads, writes, step.across, seconds, tuple(step.say())))
    return plans


def seconds_for(rate: float | None, size: int) -> float | None:
    """Estimated time on one core."""
    return None if rate is None else round(size / 1e6 / rate, 1)


def disk_factor(config: CurateConfig) -> float:
    """Bytes on disk for a byte of text, intermediate results and all."""
    texts = sum("text" in step.writes() for step in config.steps)
    columns = sum(len(step.writes()) for step in config.steps)
    return BASE_DISK + texts * TEXT_DISK + columns * COLUMN_DISK + RESULT_DISK
