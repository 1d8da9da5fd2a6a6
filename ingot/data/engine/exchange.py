"""How tasks hand records to one another: partitioned by a key, through files.

A task writes all its records into one file, ordered by partition, with the partition boundaries in front; a task of the
next phase reads its partition out of every such file. So n tasks and p partitions need n files, not n·p, and a task
holds one partition in memory. Grouping is a sort inside the partition: equal keys always meet there.

    file: "INGOTEX1" | count p (int64) | p + 1 boundaries in records (int64) | records (a packed numpy structure)

Invariant: the records of a partition come out in the order of the input files, and within a file in the order they
were given, whatever the number of workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ingot.workspace.errors import ArtifactError

MAGIC = b"INGOTEX1"
PARTITION_BYTES = 16_000_000  # what one task reads at once; what it computes from them takes several times that


def partitions_for(total_bytes: int) -> int:
    """How many partitions keep each below `PARTITION_BYTES`."""
    return max(1, -(-total_bytes // PARTITION_BYTES))


def partition_by_hash(keys: NDArray[np.uint64], count: int) -> NDArray[np.int64]:
    """The partition of each 64-bit key: its high bits, so that partitions are ranges of keys."""
    return ((keys >> np.uint64(32)) * np.uint64(count) >> np.uint64(32)).astype(np.int64)


def write_partitioned(path: Path, records: NDArray[np.void], partitions: NDArray[np.int64], count: int) -> None:
    """Write the records, grouped by partition; their order inside a partition is kept."""
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
            piece = np.frombuffer(file.read((last - first) * dtype.itemsize), dtype)
            if len(piece) != last - first:
                raise ArtifactError("a file of records is cut short", place=str(path), fix="delete it and run again")
            found.append(piece)
    return np.concatenate(found) if found else np.zeros(0, dtype)
