"""Searches documents for evals: what the steps `decontaminate` and `decon` have in common.

A step says how evals become an index, what n-grams of it a text has, and what it finds with how common these n-grams are.
With `weights: corpus` all documents are looked at twice: first to count, then to match (counting.py).

Invariant: the columns do not depend on thresholds, nor on how the documents were split into shards.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import pyarrow
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ingot.data.contamination.counting import MATCHES, NgramCounts, ShardItem, load_counts, save_counts, shard_items
from ingot.data.contamination.evals import EvalFiles, EvalIndex, file_fingerprints
from ingot.data.contamination.matches import COLUMNS, flat_matches
from ingot.data.contamination.report import eval_report, lines
from ingot.data.engine.shard import Shard, write_columns
from ingot.data.engine.work import Work
from ingot.data.step import Report, Step, cached_step
from ingot.data.text.texts import Texts


class ContaminationStep(Step):
    """Remove documents that hold an eval."""

    against: list[str | EvalFiles] = Field(
        default=[],
        description="eval files: paths or globs of jsonl(.gz, .zst), parquet, csv, txt, md",
    )
    texts: list[str] = Field(
        default=[],
        description="eval prompts written here; `{name}` is a hole that cuts a template into its fixed parts",
    )
    weights: Literal["published", "corpus"] = Field(
        default="published",
        description="what an n-gram of an eval counts. published: as the authors of the method do. corpus: the rarer it is "
        "among evals and documents together, so that licences, quotes and templates count little; goes through all "
        "documents once more",
    )

    @model_validator(mode="after")
    def _has_evals(self) -> Self:
        if not self.against and not self.texts:
            raise ValueError("nothing to compare with: give eval files in `against` or prompts in `texts`")
        return self

    @property
    @abstractmethod
    def index(self) -> EvalIndex:
        """The evals; built once in each process (a `cached_property`)."""

    @abstractmethod
    def hits(self, texts: Texts) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The n-grams of evals in these texts: of each hit the text and the number of the n-gram."""

    @abstractmethod
    def match(self, texts: Texts, counts: NgramCounts | None = None) -> dict[str, pyarrow.Array]:
        """The columns of these texts; `counts`: how common the n-grams are in the documents, if that was counted."""

    @abstractmethod
    def guilty(self, matches: pyarrow.StructArray) -> NDArray[np.int64]:
        """Which of these matches are contamination."""

    @property
    def across(self) -> bool:
        """Weights by rarity in the documents need a first pass that counts."""
        return self.weights == "corpus"

    def writes(self) -> tuple[str, ...]:
        return COLUMNS

    def outside(self) -> dict[str, str]:
        return file_fingerprints([each if isinstance(each, str) else each.files for each in self.against])

    def annotate(self, documents: Any, work: Work | None = None) -> Any:
        """See `PerDocument`; with `work`, of shards instead of documents, see `AcrossDocuments`."""
        return (
            self.match(Texts.of(documents.column("text"))) if work is None else self._count_and_match(documents, work)
        )

    def _count_and_match(self, shards: Sequence[Shard], work: Work) -> list[Path]:
        fields = type(self).model_fields  # tasks are keyed by the options without thresholds
        options = self.model_copy(update={name: fields[name].default for name in self.decides})
        name, meaning = self.short_name, self.annotation_key()
        counted = work.run(f"{name}-count", count_shard, shard_items(shards, meaning), options, version=self.version)
        items = shard_items(shards, meaning, counted)
        matched = work.run(f"{name}-match", match_shard, items, options, version=self.version)
        return [done.file(MATCHES) for done in matched]

    def say(self) -> list[str]:
        return [f"{self.short_name}: {line}" for line in self.index.say()]

    def report(self, tables: Iterable[pyarrow.Table]) -> Report:
        found = eval_report(self.index, tables, self._found, self.against, self.texts)
        return Report(found, lines(found))

    def _found(self, table: pyarrow.Table) -> tuple[NDArray[np.bool_], dict[int, list[dict[str, Any]]]]:
        """The documents of a table that go, and the matches for which they do, by row."""
        [rule] = self.decide(table)
        matches, rows = flat_matches(table)
        found: dict[int, list[dict[str, Any]]] = {}
        for match in self.guilty(matches).tolist():
            if rule.broken[rows[match]]:
                found.setdefault(int(rows[match]), []).append(matches[match].as_py())
        return rule.broken, found


def _in_this_process(step: ContaminationStep, item: ShardItem) -> ContaminationStep:
    """The step as this process saw it first: it has its index."""
    cached = cached_step(step, item.meaning)
    assert isinstance(cached, type(step))
    return cached


def count_shard(folder: Path, item: ShardItem, step: ContaminationStep) -> dict[str, Any]:
    """In how many documents of a shard each n-gram of the evals is."""
    texts = item.texts()
    documents, ids = _in_this_process(step, item).hits(texts)
    save_counts(folder, documents, ids, len(texts))
    return {"documents": len(texts), "hits": len(ids)}


def match_shard(folder: Path, item: ShardItem, step: ContaminationStep) -> dict[str, Any]:
    """The columns of a shard, with the weights that the counts of all shards give."""
    step, texts = _in_this_process(step, item), item.texts()
    write_columns(folder / MATCHES, step.match(texts, load_counts(item.counts, step.index.ngrams)))
    return {"documents": len(texts)}
