"""Hands records from the tasks of one phase to those of the next: partitioned by a key, through files.

A task writes all its records into one file, ordered by partition, with the partition boundaries in front; a task of the
next phase reads its partition out of every such file. So n tasks and p partitions need n files, not n·p, and a task
holds one partition in memory. Grouping is a sort inside the partition: equal keys always meet there.

    file: "INGOTEX1" | count p (int64) | p + 1 boundaries in records (int64) | records (a packed numpy structure)

A `Partition` is the item of a task that reads one partition of everything that the phase before wrote. Records about documents
are sent back to their shards, as one partition for each shard (`send_back`); a `ShardPartition` is such a partition and its
shard.

Invariant: the records of a partition come out in the order of the input files, and within a file in the order they
were given, whatever the number of workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ingot.data.engine.shard import Shard, shard_and_row
from ingot.data.engine.store import FinishedTask
from ingot.workspace.config import content_hash
from ingot.workspace.errors import ArtifactError

MAGIC = b"INGOTEX1"
RECORDS = "records.bin"
PARTITION_BYTES = 16_000_000  # what one task reads at once; what it computes from them takes several times that


def partitions_for(total_bytes: int) -> int:
    """How many partitions keep each below `PARTITION_BYTES`."""
    return max(1, -(-total_bytes // PARTITION_BYTES))


def partition_by_hash(keys: NDArray[np.uint64], count: int) -> NDArray[np.int64]:
    """The partition of each 64-bit key: its high bits, so that partitions are ranges of keys."""
    return ((keys >> np.uint64(32)) * np.uint64(count) >> np.uint64(32)).astype(np.int64)


def write_partitioned(path: Path, records: NDArray[np.void], partitions: NDArray[np.int64], count: int) -> None:
    """Write the records, grouped by partition; their order inside a partition stays."""
    order = np.argsort(partitions, kind="stable")
    boundaries = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(partitions, minlength=count), out=boundaries[1:])
    with path.open("wb") as file:
        file.write(MAGIC)
        file.write(np.int64(count).tobytes())
        file.write(boundaries.tobytes())
        file.write(np.ascontiguousarray(records[order]).data)


def read_partition(paths: Sequence[Path], partition: int, dtype: np.dtype[np.void]) -> NDArray[np.void]:
    """One partition of many files, end to end."""
    found = []
    for path in paths:
        with path.open("rb") as file:
            if file.read(8) != MAGIC:
                raise ArtifactError("not a file of records", place=str(path), fix="delete it and run again")
            count = int(np.frombuffer(file.read(8), np.int64)[0])
            boundaries = np.frombuffer(file.read(8 * (count + 1)), np.int64)
            first, last = int(boundaries[partition]), int(boundaries[partition + 1])
            file.seek(16 + 8 * (count + 1) + first * dtype.itemsize)
            part = np.frombuffer(file.read((last - first) * dtype.itemsize), dtype)
            if len(part) != last - first:
                raise ArtifactError("a file of records is cut short", place=str(path), fix="delete it and run again")
            found.append(part)
    return np.concatenate(found) if found else np.zeros(0, dtype)


@dataclass(frozen=True)
class Partition:
    """One partition of the records that earlier tasks wrote."""

    number: int
    files: tuple[Path, ...]
    key: str
    shards: tuple[int, ...]  # the numbers of all shards, ascending
    also: tuple[Path, ...] = ()  # other files that earlier tasks wrote

    def read(self, dtype: np.dtype[np.void]) -> NDArray[np.void]:
        """The records, in the order of the files."""
        return read_partition(self.files, self.number, dtype)

    def send_back(self, folder: Path, records: NDArray[np.void], shards: NDArray[np.int64] | None = None) -> None:
        """Write records for the shards that they are about: `shards`, or those of their `location`."""
        numbers = shard_and_row(records["location"])[0] if shards is None else shards
        write_partitioned(folder / RECORDS, records, np.searchsorted(self.shards, numbers), len(self.shards))


@dataclass(frozen=True)
class ShardPartition:
    """A shard and the records about its documents; their partition has the index of the shard for its number."""

    shard: Shard
    part: Partition

    @property
    def key(self) -> str:
        return content_hash([self.shard.key, self.part.key], 24)

    @property
    def bytes(self) -> int:
        return self.shard.bytes


def partitions(
    done: Sequence[FinishedTask], count: int, shards: Sequence[Shard], also: Sequence[Path] = ()
) -> list[Partition]:
    """The partitions of what the tasks wrote; `also` goes with each."""
    files = tuple(task.file(RECORDS) for task in done)
    numbers = tuple(shard.number for shard in shards)
    keys = [task.key for task in done]
    return [
        Partition(number, files, content_hash([keys, number, count], 24), numbers, tuple(also))
        for number in range(count)
    ]


def shard_partitions(
    done: Sequence[FinishedTask], shards: Sequence[Shard], also: Sequence[Path] | None = None
) -> list[ShardPartition]:
    """Each shard with what the tasks sent back to it; `also` has one more file for each shard."""
    found = partitions(done, len(shards), shards)
    if also is not None:
        found = [replace(part, also=(path,)) for part, path in zip(found, also, strict=True)]
    return [ShardPartition(shard, part) for shard, part in zip(shards, found, strict=True)]


def rows_of(locations: NDArray[np.int64], shard: Shard) -> NDArray[np.int64]:
    """The rows of `shard.read` that have these locations."""
    return np.searchsorted(shard.locations(), locations)
