"""The step `ventiles` turns scores into ranks inside topics.

The documents of a topic, ordered by score, are cut into `buckets` shares of equal weight (tokens):

    bucket = floor(buckets × (weight of the documents before it) / (weight of the topic))

Equal scores are ordered by location, so that every document has one bucket. A classifier's raw score means another thing
in every topic (a recipe is never an encyclopaedia); the rank does not. Olmo 3 upsamples by topic and ventile.

Exact, through files, in bounded memory:
    measure   by shard: weight and number of documents by (topic, 16 high bits of the score)
    spread    by shard: records to partitions, which are runs of (topic, high bits) with at most so many records
    rank      by partition: sort, add up weights from the partition's start, cut; records back to their shards
    gather    by shard: the column in the order of the documents

Invariant: a bucket depends on the documents only, not on shards, partitions or workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from numpy.typing import NDArray
from pydantic import Field

from ingot.data.engine.exchange import (
    PARTITION_BYTES,
    RECORDS,
    Partition,
    ShardPartition,
    partitions,
    rows_of,
    shard_partitions,
    write_partitioned,
)
from ingot.data.engine.shard import COLUMNS, Shard, write_columns
from ingot.data.engine.work import Work
from ingot.data.native import hash_each
from ingot.data.step import AcrossDocuments, numbers
from ingot.data.text.texts import Texts

RECORD = np.dtype([("topic", "<u8"), ("order", "<u8"), ("location", "<i8"), ("weight", "<i8")])
RESULT = np.dtype([("location", "<i8"), ("bucket", "<i2")])
CELL = np.dtype([("topic", "<u8"), ("high", "<u8"), ("weight", "<i8"), ("count", "<i8")])
LOW_BITS = np.uint64(48)
CELLS = "cells.npy"


class VentilesStep(AcrossDocuments):
    """Turn scores into equal shares of the tokens inside each topic (Olmo 3: 24 topics x 20 buckets). See ventiles.py."""

    score: str = Field(default="quality", description="column of the score; a higher one is better")
    topic: str | None = Field(default=None, description="column of the topic (null: all documents are one topic)")
    tokens: str | None = Field(
        default=None, description="column with the tokens of a document (null: its bytes, which stand in for them)"
    )
    buckets: int = Field(default=20, ge=2, le=1000, description="equal shares: 20 are ventiles")
    column: str = Field(default="quality_bucket", min_length=1, description="column for the bucket: 0 is the worst")

    def reads(self) -> tuple[str, ...]:
        return (*super().reads(), self.score, *(name for name in (self.topic, self.tokens) if name))

    def writes(self) -> tuple[str, ...]:
        return (self.column,)

    def annotate(self, shards: Sequence[Shard], work: Work) -> list[Path]:
        measured = work.run("ventiles-measure", measure, shards, self, version=self.version)
        [everything] = partitions(measured, 1, shards)
        [added] = work.run("ventiles-add", add_up, [everything], self, version=self.version)
        cells = [added.file(CELLS)]
        [everything] = partitions(measured, 1, shards, cells)
        items = [ShardPartition(shard, everything) for shard in shards]
        spreads = work.run("ventiles-spread", spread, items, self, version=self.version)
        ranking = partitions(spreads, added.report["partitions"], shards, cells)
        ranked = work.run("ventiles-rank", rank, ranking, self.buckets, version=self.version)
        gathering = shard_partitions(ranked, shards)
        done = work.run("ventiles-gather", gather, gathering, self.column, version=self.version)
        return [each.file(COLUMNS) for each in done]


def ascending(scores: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Integers in the order of the scores: the bits of a float, those of negative ones inverted."""
    bits = (scores + 0.0).view(np.uint64)  # -0.0 becomes 0.0
    sign = np.uint64(1) << np.uint64(63)
    return np.where(bits & sign, ~bits, bits | sign)


def records_of(shard: Shard, config: VentilesStep) -> NDArray[np.void]:
    """One record for each document that has a score."""
    table = shard.read([name for name in config.reads() if name != "text" or config.tokens is None])
    scores = numbers(table, config.score)
    records = np.zeros(len(scores), RECORD)
    if config.topic:
        topics = Texts.of(table.column(config.topic).cast(pyarrow.large_string()))
        records["topic"] = hash_each(topics.data, topics.offsets, np.uint64(0))
    records["order"] = ascending(scores)
    records["location"] = shard.locations()
    if config.tokens:
        records["weight"] = np.nan_to_num(numbers(table, config.tokens)).astype(np.int64)
    else:
        records["weight"] = np.diff(Texts.of(table.column("text")).offsets)
    return np.asarray(records[~np.isnan(scores)])


def cells_of(records: NDArray[np.void]) -> NDArray[np.void]:
    """Weight and number of records by topic and high bits, ascending."""
    order = np.lexsort((records["order"], records["topic"]))
    ordered: NDArray[np.uint64] = records["order"][order]
    topic, high = records["topic"][order], ordered >> LOW_BITS
    first = np.flatnonzero(np.r_[True, (topic[1:] != topic[:-1]) | (high[1:] != high[:-1])]) if len(order) else order
    cells = np.zeros(len(first), CELL)
    cells["topic"], cells["high"] = topic[first], high[first]
    if len(first):
        cells["weight"] = np.add.reduceat(records["weight"][order], first)
        cells["count"] = np.diff(np.r_[first, len(order)])
    return cells


def merged(together: NDArray[np.void]) -> NDArray[np.void]:
    """The cells of all shards added up."""
    keys, inverse = np.unique(together[["topic", "high"]], return_inverse=True)
    cells = np.zeros(len(keys), CELL)
    cells["topic"], cells["high"] = keys["topic"], keys["high"]
    np.add.at(cells["weight"], inverse, together["weight"])
    np.add.at(cells["count"], inverse, together["count"])
    return cells


@dataclass(frozen=True)
class CellTable:
    """How records are spread: cells in order, the partition of each, and the weight before it in its topic."""

    cells: NDArray[np.void]
    partition: NDArray[np.int64]
    before: NDArray[np.int64]
    total: NDArray[np.int64]

    @classmethod
    def load(cls, part: Partition) -> CellTable:
        """The table that every task makes from the cells of all shards."""
        return cls.of(np.load(part.also[0]))

    @classmethod
    def of(cls, cells: NDArray[np.void], most: int = PARTITION_BYTES // RECORD.itemsize) -> CellTable:
        """Fill partitions with cells in order, at most `most` records each (a single cell may have more)."""
        partition = np.zeros(len(cells), np.int64)
        number = held = 0
        for index, count in enumerate(cells["count"]):
            if held and held + count > most:
                number, held = number + 1, 0
            partition[index] = number
            held += int(count)
        topics, first, inverse = np.unique(cells["topic"], return_index=True, return_inverse=True)
        weights: NDArray[np.int64] = cells["weight"]
        running = np.cumsum(weights) - weights
        totals = np.add.reduceat(weights, first) if len(topics) else np.zeros(0, np.int64)
        return cls(cells, partition, running - running[first][inverse], totals[inverse])

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return int(self.partition[-1]) + 1 if len(self.partition) else 1

    def find(self, records: NDArray[np.void]) -> NDArray[np.int64]:
        """The cell of every record."""
        keys = np.zeros(len(records), [("topic", "<u8"), ("high", "<u8")])
        keys["topic"], keys["high"] = records["topic"], records["order"] >> LOW_BITS
        return np.searchsorted(self.cells[["topic", "high"]].astype(keys.dtype), keys)


def measure(folder: Path, shard: Shard, config: VentilesStep) -> dict[str, Any]:
    """By shard: its cells."""
    records = records_of(shard, config)
    cells = cells_of(records)
    write_partitioned(folder / RECORDS, cells, np.zeros(len(cells), np.int64), 1)
    return {"documents": len(records)}


def add_up(folder: Path, part: Partition, config: VentilesStep) -> dict[str, Any]:
    """The cells of all shards."""
    cells = merged(part.read(CELL))
    np.save(folder / CELLS, cells)
    table = CellTable.of(cells)
    return {"partitions": table.partitions, "topics": len(np.unique(cells["topic"]))}


def spread(folder: Path, item: ShardPartition, config: VentilesStep) -> dict[str, Any]:
    """By shard: its records, by partition."""
    records, table = records_of(item.shard, config), CellTable.load(item.part)
    write_partitioned(folder / RECORDS, records, table.partition[table.find(records)], table.partitions)
    return {"documents": len(records)}


def rank(folder: Path, part: Partition, buckets: int) -> dict[str, Any]:
    """By partition: the bucket of every record, by shard."""
    records, table = part.read(RECORD), CellTable.load(part)
    records = records[np.lexsort((records["location"], records["order"], records["topic"]))]
    cell = table.find(records)
    weights: NDArray[np.int64] = records["weight"]
    running = np.cumsum(weights) - weights  # inside the partition
    first = np.flatnonzero(np.r_[True, records["topic"][1:] != records["topic"][:-1]]) if len(records) else cell
    start = np.repeat(running[first] - table.before[cell[first]], np.diff(np.r_[first, len(records)]))
    before, total = running - start, np.maximum(table.total[cell], 1)
    results = np.zeros(len(records), RESULT)
    results["location"] = records["location"]
    results["bucket"] = np.minimum(before * buckets // total, buckets - 1)
    part.send_back(folder, results)
    return {"documents": len(records)}


def gather(folder: Path, item: ShardPartition, column: str) -> dict[str, Any]:
    """By shard: the column, null where there was no score."""
    results, total = item.part.read(RESULT), len(item.shard.rows_alive())
    buckets, known = np.zeros(total, np.int16), np.zeros(total, bool)
    rows = rows_of(results["location"], item.shard)
    buckets[rows], known[rows] = results["bucket"], True
    write_columns(folder / COLUMNS, {column: pyarrow.array(buckets, mask=~known)})
    return {"documents": int(known.sum())}
