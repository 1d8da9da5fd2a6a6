"""A step of curation: its options and its work. It annotates documents with columns, and its rules decide on them.

    options     what the user writes in the recipe; they say which columns the step reads and writes
    annotate    computes the columns; the expensive part, stored and never computed twice
    decide      compares columns with thresholds; cheap, done again whenever a threshold changes

A step is one class in one file of steps/, found there by the name of the file; outside.py is about steps that are not of
this package. `PerDocument` looks at one document at a time (`PerText` at its text alone), `AcrossDocuments` at all of them
(duplicates, ranks). A step that writes the column `text` rewrites the documents. A recipe that names a step imports it, with
numpy, Arrow and numba.

Invariant: what `annotate` computes for a document does not depend on the other documents of the batch, nor on the
fields named in `decides`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import pyarrow
from numpy.typing import NDArray
from pydantic import Field

from ingot.data.engine.shard import Shard
from ingot.data.engine.work import Work
from ingot.data.text.texts import Texts
from ingot.workspace.config import content_hash
from ingot.workspace.kinds import Kind
from ingot.workspace.outside import digests, without_paths

Words = Literal["whitespace", "letters"]
WORDS = "what a word is: `whitespace` as str.split(), `letters` as runs of \\w"


@dataclass(frozen=True)
class Rule:
    """One comparison: which rows break it, and what to tell a person about a row that does."""

    name: str
    broken: NDArray[np.bool_]
    values: Sequence[Any] | NDArray[Any] | None = None  # what was measured, by row
    limit: str = ""  # "< 50", "> 0.3", "not one of en, de"
    spans: Sequence[Sequence[tuple[int, int]]] | None = None  # by row: characters [start, end) that the rule is about
    partners: NDArray[np.int64] | None = (
        None  # by row: the location (engine/shard.py) of the document that stays, or -1
    )

    def detail(self, row: int) -> str:
        """`2.31 < 3` for a row."""
        if self.values is None:
            return self.limit
        value = self.values[row]
        shown = f"{value:.4g}" if isinstance(value, float | np.floating) else f"{value}"
        return f"{shown} {self.limit}".strip()


@dataclass(frozen=True)
class Report:
    """What a step found in all documents: for a JSON file next to funnel.json, and for the screen."""

    content: dict[str, Any]
    lines: list[str]


def at_least(name: str, values: NDArray[Any], limit: float) -> Rule:
    """Rows below `limit` go; a value that was not computed (nan) stays."""
    return Rule(name, values < limit, values, f"< {limit:g}")


def at_most(name: str, values: NDArray[Any], limit: float) -> Rule:
    """Rows above `limit` go; a value that was not computed (nan) stays."""
    return Rule(name, values > limit, values, f"> {limit:g}")


def per(counts: NDArray[Any], total: NDArray[Any]) -> NDArray[np.float64]:
    """Shares; 0 of 0 is 0."""
    return np.divide(counts, total, out=np.zeros(len(counts)), where=total > 0)


def numbers(columns: pyarrow.Table, name: str) -> NDArray[np.float64]:
    """A column as floats; null becomes nan, which breaks no rule."""
    column = columns.column(name).combine_chunks().cast(pyarrow.float64())
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)


class Step(Kind, ABC):
    """Options that every step has. A step adds its own, and what it does with them."""

    key: ClassVar[str] = "step"
    package: ClassVar[str] = "ingot.data.steps"

    decides: ClassVar[frozenset[str]] = frozenset()
    """Thresholds: fields that only `decide` reads. Changing one computes no column again."""

    version: ClassVar[int] = 1
    """Raise it when `annotate` computes something else: stored columns of the old version are not used again."""

    rate: ClassVar[float | None] = None
    """Megabytes of text a second on one core of a 2.6 GHz ARM server, for `--dry-run`; None: not known."""

    step: str = Field(default="", description="name of the step, or `file.py:Name` for one of your own")
    where: dict[str, str | list[str]] = Field(
        default={},
        description="look only at documents whose column has this value, as in {kind: prose} or {language: [en, de]}; "
        "the others pass untouched",
    )

    @property
    def short_name(self) -> str:
        """Its name in tables and folders: of `file.py:Name`, what is behind the colon."""
        return self.step.rpartition(":")[2]

    @property
    @abstractmethod
    def across(self) -> bool:
        """Whether the step compares documents with one another."""

    def reads(self) -> tuple[str, ...]:
        """The columns that the step needs, checked before anything runs."""
        return ("text", *self.where)

    def writes(self) -> tuple[str, ...]:
        """The columns that the step fills in. A name that begins with `_` is for later steps, not for the result."""
        return ()

    def outside(self) -> dict[str, str]:
        """Fingerprints of files the step reads besides the documents (word lists, models, evals)."""
        return {}

    def files(self) -> dict[str, str]:
        """`outside`, and for a step from outside the package the content of its own file."""
        return self.outside() | without_paths(digests(self.step))

    def annotation_key(self) -> str:
        """What the columns depend on: every option except the thresholds, and the files outside."""
        return content_hash([without_paths(self.model_dump(mode="json", exclude=set(self.decides))), self.files()])

    def task_options(self) -> dict[str, Any]:
        """What the tasks of the step need to know, and what their results depend on: options, files outside, version."""
        config = self.model_dump(mode="json", exclude=set(self.decides))
        return {"config": config, "outside": self.files(), "version": self.version}

    @abstractmethod
    def annotate(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the columns: of documents (`PerDocument`), or of shards (`AcrossDocuments`)."""

    def decide(self, columns: pyarrow.Table) -> list[Rule]:
        """What breaks a threshold, in the order in which reasons are given; `columns` has at least what was written.

        The table holds only the documents that the step looked at (`where`), in order.
        """
        return []

    def notes(self, columns: pyarrow.Table) -> Sequence[str | None]:
        """By document what `annotate` did otherwise than asked, or None; counted in the funnel, as `repaired`. `columns`
        is what `decide` sees."""
        return ()

    def say(self) -> list[str]:
        """Lines for the screen, before the step runs (an S-curve, the size of a word list)."""
        return []

    def report(self, tables: Iterable[pyarrow.Table]) -> Report | None:
        """A report on the documents that the step looked at, if it has one; `tables` have the column `id` and
        what the step wrote."""
        return None

    def __getstate__(self) -> dict[Any, Any]:
        """The options alone: what a step has read (`cached_property`) is not sent to other processes."""
        state = super().__getstate__()
        return state | {"__dict__": self._options(state["__dict__"])}

    def __copy__(self) -> Self:
        """The options alone: a copy with other options (`model_copy`) has nothing that was read for the old ones."""
        copied = super().__copy__()
        object.__setattr__(copied, "__dict__", self._options(copied.__dict__))
        return copied

    def _options(self, values: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in values.items() if name in type(self).model_fields}


class PerDocument(Step):
    """A step that looks at one document at a time."""

    @property
    def across(self) -> bool:
        return False

    @abstractmethod
    def annotate(self, documents: pyarrow.Table) -> dict[str, pyarrow.Array]:
        """Every column of `writes()`, one value a row. `documents` has the columns of `reads()`.

        Called in a worker process with some tens of megabytes of text; must not hold state between calls.
        """


class PerText(PerDocument):
    """A step that looks at nothing but the texts."""

    def annotate(self, documents: pyarrow.Table) -> dict[str, pyarrow.Array]:
        columns: dict[str, pyarrow.Array] = {}
        for name, values in self.measure(Texts.of(documents.column("text"))).items():
            columns[name] = values.column() if isinstance(values, Texts) else pyarrow.array(values)
        return columns

    @abstractmethod
    def measure(self, texts: Texts) -> dict[str, Any]:
        """Every column of `writes()`, one value a text: arrays of numpy or Arrow, or `Texts`."""


class AcrossDocuments(Step):
    """A step that compares documents with one another: through files, in tasks, never in one process's memory."""

    @property
    def across(self) -> bool:
        return True

    @abstractmethod
    def annotate(self, shards: Sequence[Shard], work: Work) -> list[Path]:
        """For each shard the path of a Parquet file with the columns of `writes()`, a row for each document that
        `shard.read()` gives, in that order. Written by tasks of `work`."""


CACHED_STEPS = 32

_cached: dict[str, Step] = {}


def cached_step(step: Step, key: str) -> Step:
    """The first step with the same key that this process has seen: it has already read its files."""
    if key not in _cached and len(_cached) >= CACHED_STEPS:
        _cached.clear()
    return _cached.setdefault(key, step)


def meaning(step: Step) -> str:
    """A hash of a step with all its options and files: the key of `cached_step`."""
    return content_hash([step.version, without_paths(step.model_dump(mode="json")), step.files()], 24)
