"""Writes the results: documents and removed documents as Parquet parts, samples of the removed for the report.

    documents/part-*.parquet   id, text, source, kind, quality, then one column per annotation (no name with a leading _)
    removed/part-*.parquet     id, text, source, step, rule, detail, spans, duplicate_of: every document that went

A part holds what is left of consecutive shards, 8 to 64 MB of text, in the order of the documents. Parts are tasks: the
same documents give the same bytes. Their size depends on the amount of text only, so that a small corpus makes enough
of them for all processors.
"""

from __future__ import annotations

import heapq
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow
import pyarrow.compute
import pyarrow.parquet

from ingot.data.columns import content_name, input_key
from ingot.data.engine.shard import Shard, location_of, shard_and_row
from ingot.data.engine.store import FinishedTask
from ingot.data.engine.work import WorkPhase
from ingot.data.funnel import sample_key, sample_row
from ingot.workspace.config import content_hash
from ingot.workspace.files import write_jsonl

LARGEST_PART = 64_000_000
SMALLEST_PART = 8_000_000
WANTED_PARTS = 16
ROW_GROUP = 1024
PART, SAMPLES = "part.parquet", "samples.jsonl"
VERSION = 3  # of the removed parts; raise it when they hold something else
FIRST_COLUMNS = ("id", "text", "source", "kind", "quality")
DEFAULTS = {"kind": "prose", "quality": 1.0}  # where no step said otherwise
SHORT_COLUMNS = ["source", "kind", "step", "rule", "mime", "language"]


@dataclass(frozen=True)
class DocumentsPart:
    """Consecutive shards whose documents make one part."""

    key: str
    shards: tuple[Shard, ...]
    schema: pyarrow.Schema
    bytes: int


@dataclass(frozen=True)
class Removal:
    """What one run of steps removed from one shard: `shard` is how the steps found it."""

    shard: Shard
    verdicts: Path
    steps: tuple[str, ...]
    bytes: int


@dataclass(frozen=True)
class RemovedPart:
    """Removals that make one part; `shards` are all, to find the partners of duplicates."""

    key: str
    removals: tuple[Removal, ...]
    shards: tuple[Shard, ...]
    bytes: int


Grouped = TypeVar("Grouped", Shard, Removal)


def part_bytes(total: int) -> int:
    """The size of parts for so many bytes of documents, those that stay and those that go."""
    return min(LARGEST_PART, max(SMALLEST_PART, total // WANTED_PARTS))


def documents_phase(shards: Sequence[Shard], sizes: Sequence[int], columns: Sequence[str], size: int) -> WorkPhase:
    """The parts of the documents that are left; `sizes` are their bytes by shard, `columns` what they have."""
    schema = schema_of(shards, columns)
    items = [documents_item(group, schema, total) for group, total in parts(shards, sizes, size)]
    return WorkPhase("documents", documents_part, items)


def removed_phase(removals: Sequence[Removal], shards: Sequence[Shard], samples: int, size: int) -> WorkPhase:
    """The parts of the removed documents, with at most so many samples for each reason."""
    sizes = [removal.bytes for removal in removals]
    items = [removed_item(group, shards, total) for group, total in parts(removals, sizes, size)]
    return WorkPhase("removed", removed_part, items, {"samples": samples}, VERSION)


def documents_item(shards: tuple[Shard, ...], schema: pyarrow.Schema, size: int) -> DocumentsPart:
    """A part of the documents, with its key."""
    key = content_hash([[input_key(shard, schema.names) for shard in shards], schema.to_string()], 24)
    return DocumentsPart(key, shards, schema, size)


def removed_item(removals: tuple[Removal, ...], shards: Sequence[Shard], size: int) -> RemovedPart:
    """A part of the removed documents, with its key."""
    made_of = [
        [content_name(each.verdicts), list(each.steps), input_key(each.shard, ["id", "text", "source"])]
        for each in removals
    ]
    numbered = content_hash([content_name(shard.path_of("id")) for shard in shards], 24)
    return RemovedPart(content_hash([made_of, numbered], 24), removals, tuple(shards), size)


def schema_of(shards: Sequence[Shard], columns: Sequence[str]) -> pyarrow.Schema:
    """The columns of the documents and their types: of the first shard where a column holds anything."""
    names = dict.fromkeys([*FIRST_COLUMNS, *sorted(set(columns))])
    fields = []
    for name in names:
        kind = pyarrow.float64() if name == "quality" else pyarrow.string()
        for path in dict.fromkeys(shard.path_of(name) for shard in shards):
            schema = pyarrow.parquet.read_schema(path)
            if name in schema.names and not pyarrow.types.is_null(schema.field(name).type):
                kind = schema.field(name).type
                break
        fields.append((name, pyarrow.string() if pyarrow.types.is_large_string(kind) else kind))
    return pyarrow.schema(fields)


def parts(items: Sequence[Grouped], sizes: Sequence[int], enough: int) -> Iterator[tuple[tuple[Grouped, ...], int]]:
    """Consecutive items that hold anything, together until they are large `enough`; and the bytes of each group."""
    group: list[Grouped] = []
    total = 0
    for item, size in zip(items, sizes, strict=True):
        if size:
            group.append(item)
            total += size
        if total >= enough:
            yield tuple(group), total
            group, total = [], 0
    if group:
        yield tuple(group), total


def documents_part(folder: Path, item: DocumentsPart, _: None) -> dict[str, Any]:
    """Write one part: shard after shard, a few thousand documents at a time."""
    count = 0
    by_kind: dict[str, int] = {}
    by_source: dict[str, int] = {}
    quality = 0.0
    with open_part(folder / PART, item.schema) as writer:
        for shard in item.shards:
            table = shard.read(item.schema.names)
            for name, value in DEFAULTS.items():
                column = pyarrow.compute.fill_null(table.column(name).cast(item.schema.field(name).type), value)
                table = table.set_column(table.column_names.index(name), name, column)
            writer.write_table(table.cast(item.schema), row_group_size=ROW_GROUP)
            sizes = np.asarray(pyarrow.compute.binary_length(table.column("text")).to_numpy(), np.int64)
            for name, totals in (("kind", by_kind), ("source", by_source)):
                for value, size in zip(table.column(name).to_pylist(), sizes.tolist(), strict=True):
                    totals[value] = totals.get(value, 0) + size
            count += len(table)
            quality += float(pyarrow.compute.sum(table.column("quality")).as_py() or 0.0)
    return {"documents": count, "kind": by_kind, "source": by_source, "quality": quality}


def open_part(path: Path, schema: pyarrow.Schema) -> pyarrow.parquet.ParquetWriter:
    """A writer of a part. Only short, repeated words are worth a dictionary."""
    short = [name for name in schema.names if name in SHORT_COLUMNS]
    return pyarrow.parquet.ParquetWriter(path, schema, compression="zstd", use_dictionary=short)


def removed_schema() -> pyarrow.Schema:
    """The columns of removed documents."""
    words = ("id", "text", "source", "step", "rule", "detail")
    spans = ("spans", pyarrow.list_(pyarrow.list_(pyarrow.int64())))
    return pyarrow.schema([*((name, pyarrow.string()) for name in words), spans, ("duplicate_of", pyarrow.string())])


def removed_part(folder: Path, item: RemovedPart, options: dict[str, int]) -> dict[str, Any]:
    """Write one part of removed documents, and the samples of it by step and rule."""
    samples: dict[tuple[str, str], list[dict[str, Any]]] = {}
    with open_part(folder / PART, removed_schema()) as writer:
        for removal in item.removals:
            table, own, partners = removed_rows(removal, item.shards)
            writer.write_table(table, row_group_size=ROW_GROUP)
            ids, steps, rules = (table.column(name).to_pylist() for name in ("id", "step", "rule"))
            order = sorted(range(len(ids)), key=lambda row: sample_key(ids[row]))
            taken: Counter[tuple[str, str]] = Counter()
            for row in order:
                reason = steps[row], rules[row]
                taken[reason] += 1
                if taken[reason] <= options["samples"]:
                    sample = sample_row(table.slice(row, 1).to_pylist()[0])
                    samples.setdefault(reason, []).append(sample | {"own": own[row], "partner": partners[row]})
    rows = [row for reason in samples.values() for row in least(reason, options["samples"])]
    write_jsonl(folder / SAMPLES, rows)
    return {}


def removed_rows(removal: Removal, shards: Sequence[Shard]) -> tuple[pyarrow.Table, list[int], list[int]]:
    """The documents that a run of steps removed from a shard, their locations, and the locations of their partners."""
    verdicts = pyarrow.parquet.read_table(removal.verdicts, use_threads=False)
    documents = removal.shard.read(["id", "text", "source"], removed=True).take(verdicts.column("row"))
    locations = np.asarray(verdicts.column("partner").to_numpy(), np.int64)
    partners: list[str | None] = [None] * len(locations)
    numbers, rows = shard_and_row(locations)
    for number in np.unique(numbers[locations >= 0]).tolist():
        here = np.flatnonzero((numbers == number) & (locations >= 0))
        for row, name in zip(here.tolist(), shards[number].ids(rows[here]), strict=True):
            partners[row] = name
    columns = {
        "id": documents.column("id"),
        "text": documents.column("text"),
        "source": documents.column("source"),
        "step": pyarrow.array([removal.steps[step] for step in verdicts.column("step").to_pylist()], pyarrow.string()),
        **{name: verdicts.column(name) for name in ("rule", "detail", "spans")},
        "duplicate_of": pyarrow.array(partners, pyarrow.string()),
    }
    own = location_of(removal.shard.number, np.asarray(verdicts.column("row").to_numpy(), np.int64))
    return pyarrow.table(columns).cast(removed_schema()), own.tolist(), locations.tolist()


def least(rows: Sequence[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """The samples that come first by the hash of their ids."""
    return heapq.nsmallest(count, rows, key=lambda row: sample_key(row["id"]))


def publish(parts_done: Sequence[FinishedTask], folder: Path) -> None:
    """Put finished parts into `folder` under their final names: as second names of the same files where that works."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, task in enumerate(parts_done):
        target = folder / f"part-{number:05d}.parquet"
        try:
            os.link(task.file(PART), target)
        except OSError:  # another file system
            shutil.copyfile(task.file(PART), target)
