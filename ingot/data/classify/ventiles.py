"""The tasks of the step `ventiles`; steps/ventiles.py says what they are for and in which order they run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ingot.data.engine.exchange import PARTITION_BYTES, read_partition, write_partitioned
from ingot.data.engine.shard import Shard, shard_and_row
from ingot.data.native import hash_span, kernel
from ingot.data.step import numbers
from ingot.data.steps.ventiles import VentilesStep
from ingot.data.text.texts import Texts

if TYPE_CHECKING:
    pass

RECORD = np.dtype([("topic", "<u8"), ("order", "<u8"), ("place", "<i8"), ("weight", "<i8")])
RESULT = np.dtype([("place", "<i8"), ("bucket", "<i2")])
CELL = np.dtype([("topic", "<u8"), ("high", "<u8"), ("weight", "<i8"), ("count", "<i8")])
LOW_BITS = np.uint64(48)


@kernel
def hash_texts(data: NDArray[np.uint8], offsets: NDArray[np.int64], hashes: NDArray[np.uint64]) -> None:
    """A hash of every topic's name."""
    for text in range(len(offsets) - 1):
        hashes[text] = hash_span(data, offsets[text], offsets[text + 1], np.uint64(0))


def ascending(scores: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Integers in the order of the scores: the bits of a float, negative ones turned round."""
    bits = (scores + 0.0).view(np.uint64)  # -0.0 becomes 0.0
    sign = np.uint64(1) << np.uint64(63)
    return np.where(bits & sign, ~bits, bits | sign)


def records_of(shard: Shard, config: VentilesStep) -> NDArray[np.void]:
    """One record for each document that has a score and that the step looks at."""
    import pyarrow

    names = dict.fromkeys((*config.reads(), *config.where))
    table = shard.read([name for name in names if name != "text" or config.tokens is None])
    scores = numbers(table, config.score)
    looked_at = ~np.isnan(scores)
    for name, wanted in config.where.items():
        values = [wanted] if isinstance(wanted, str) else wanted
        looked_at &= np.array([value in values for value in table.column(name).to_pylist()], bool)
    records = np.zeros(len(scores), RECORD)
    if config.topic:
        topics = Texts.of(table.column(config.topic).cast(pyarrow.large_string()))
        hash_texts(topics.data, topics.offsets, records["topic"])
    records["order"] = ascending(scores)
    records["place"] = shard.places()
    if config.tokens:
        records["weight"] = np.nan_to_num(numbers(table, config.tokens)).astype(np.int64)
    else:
        records["weight"] = np.diff(Texts.of(table.column("text")).offsets)
    return np.asarray(records[looked_at])


def cells_of(records: NDArray[np.void]) -> NDArray[np.void]:
    """Weight and number of records by topic and high bits, ascending."""
    order = np.lexsort((records["order"], records["topic"]))
    topic, high = records["topic"][order], records["order"][order] >> LOW_BITS
    first = np.flatnonzero(np.r_[True, (topic[1:] != topic[:-1]) | (high[1:] != high[:-1])]) if len(order) else order
    cells = np.zeros(len(first), CELL)
    cells["topic"], cells["high"] = topic[first], high[first]
    if len(first):
        cells["weight"] = np.add.reduceat(records["weight"][order], first)
        cells["count"] = np.diff(np.r_[first, len(order)])
    return cells


def merged(tables: Sequence[NDArray[np.void]]) -> NDArray[np.void]:
    """The cells of all shards added up."""
    together = np.concatenate([np.zeros(0, CELL), *tables])
    keys, place = np.unique(together[["topic", "high"]], return_inverse=True)
    cells = np.zeros(len(keys), CELL)
    cells["topic"], cells["high"] = keys["topic"], keys["high"]
    np.add.at(cells["weight"], place, together["weight"])
    np.add.at(cells["count"], place, together["count"])
    return cells


@dataclass(frozen=True)
class CellTable:
    """How records are spread: cells in order, the partition of each, and the weight before it in its topic."""

    cells: NDArray[np.void]
    partition: NDArray[np.int64]
    before: NDArray[np.int64]
    total: NDArray[np.int64]

    @classmethod
    def of(cls, cells: NDArray[np.void], most: int) -> CellTable:
        """Fill partitions with cells in order, at most `most` records each (a single cell may have more)."""
        partition = np.zeros(len(cells), np.int64)
        number = held = 0
        for index, count in enumerate(cells["count"]):
            if held and held + count > most:
                number, held = number + 1, 0
            partition[index] = number
            held += int(count)
        topics, first, place = np.unique(cells["topic"], return_index=True, return_inverse=True)
        running = np.cumsum(cells["weight"]) - cells["weight"]
        totals = np.add.reduceat(cells["weight"], first) if len(topics) else np.zeros(0, np.int64)
        return cls(cells, partition, running - running[first][place], totals[place])

    def find(self, records: NDArray[np.void]) -> NDArray[np.int64]:
        """The cell of every record."""
        keys = np.zeros(len(records), [("topic", "<u8"), ("high", "<u8")])
        keys["topic"], keys["high"] = records["topic"], records["order"] >> LOW_BITS
        return np.searchsorted(self.cells[["topic", "high"]].astype(keys.dtype), keys)


@dataclass(frozen=True)
class Spread:
    """A shard and the file with all cells."""

    shard: Shard
    cells: Path
    key: str


@dataclass(frozen=True)
class Partition:
    """A partition (or a shard's results) of several files."""

    number: int
    files: tuple[Path, ...]
    cells: Path
    places: Shard | None
    key: str


def measure(folder: Path, shard: Shard, config: VentilesStep) -> dict[str, Any]:
    """By shard: its cells."""
    records = records_of(shard, config)
    np.save(folder / "cells.npy", cells_of(records))
    return {"documents": len(records)}


def add_up(folder: Path, part: Partition, config: VentilesStep) -> dict[str, Any]:
    """The cells of all shards."""
    cells = merged([np.load(path) for path in part.files])
    np.save(folder / "cells.npy", cells)
    plan = CellTable.of(cells, PARTITION_BYTES // RECORD.itemsize)
    return {"partitions": int(plan.partition[-1]) + 1 if len(cells) else 1, "topics": len(np.unique(cells["topic"]))}


def cell_table(path: Path) -> CellTable:
    """The plan that every task makes from the same cells."""
    return CellTable.of(np.load(path), PARTITION_BYTES // RECORD.itemsize)


def spread(folder: Path, item: Spread, config: VentilesStep) -> dict[str, Any]:
    """By shard: its records, by partition."""
    records, plan = records_of(item.shard, config), cell_table(item.cells)
    count = int(plan.partition[-1]) + 1 if len(plan.partition) else 1
    write_partitioned(folder / "records", records, plan.partition[plan.find(records)], count)
    return {"documents": len(records)}


def rank(folder: Path, part: Partition, options: dict[str, Any]) -> dict[str, Any]:
    """By partition: the bucket of every record, by shard."""
    records, plan = read_partition(part.files, part.number, RECORD), cell_table(part.cells)
    records = records[np.lexsort((records["place"], records["order"], records["topic"]))]
    cell = plan.find(records)
    running = np.cumsum(records["weight"]) - records["weight"]  # inside the partition
    first = np.flatnonzero(np.r_[True, records["topic"][1:] != records["topic"][:-1]]) if len(records) else cell
    start = np.repeat(running[first] - plan.before[cell[first]], np.diff(np.r_[first, len(records)]))
    before, total = running - start, np.maximum(plan.total[cell], 1)
    results = np.zeros(len(records), RESULT)
    results["place"] = records["place"]
    results["bucket"] = np.minimum(before * options["buckets"] // total, options["buckets"] - 1)
    write_partitioned(folder / "buckets", results, shard_and_row(records["place"])[0], options["shards"])
    return {"documents": len(records)}


def gather(folder: Path, part: Partition, column: str) -> dict[str, Any]:
    """By shard: the column, null where there was no score."""
    import pyarrow
    import pyarrow.parquet

    assert part.places is not None
    places = part.places.places()
    results = read_partition(part.files, part.number, RESULT)
    buckets, known = np.zeros(len(places), np.int16), np.zeros(len(places), bool)
    rows = np.searchsorted(places, results["place"])
    buckets[rows], known[rows] = results["bucket"], True
    pyarrow.parquet.write_table(
        pyarrow.table({column: pyarrow.array(buckets, mask=~known)}), folder / "columns.parquet"
    )
    return {"documents": int(known.sum())}
