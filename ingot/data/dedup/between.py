"""What the phases of deduplication hand to one another: parts of files, and the way back to the shards.

Partition    one partition of the record files of the phase before
Output  a shard, and the files in which the records about its documents lie (one partition a shard)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ingot.data.engine.exchange import read_partition, write_partitioned
from ingot.data.engine.shard import Shard, shard_and_row
from ingot.data.engine.work import Done
from ingot.data.step import Step
from ingot.data.text.arrays import Offsets
from ingot.workspace.config import content_hash

if TYPE_CHECKING:
    import pyarrow

RECORDS = "records.bin"


@dataclass(frozen=True)
class Partition:
    """One partition of the records that earlier tasks wrote."""

    number: int
    files: tuple[Path, ...]
    key: str
    shards: tuple[int, ...]  # the numbers of all shards, ascending: where the way back leads

    def read(self, dtype: np.dtype[np.void]) -> NDArray[np.void]:
        """The records, in the order of the files."""
        return read_partition(self.files, self.number, dtype)


@dataclass(frozen=True)
class Output:
    """A shard and the records about its documents."""

    shard: Shard
    part: Partition
    also: Path | None = None  # a file that an earlier task wrote for this shard

    @property
    def key(self) -> str:
        return content_hash([self.shard.key, self.part.key], 24)

    @property
    def bytes(self) -> int:
        """How much work it is: large ones begin first."""
        return self.shard.bytes


def parts_of(done: Sequence[Done], count: int, shards: Sequence[Shard]) -> list[Partition]:
    """The partitions of what the tasks wrote."""
    files = tuple(task.file(RECORDS) for task in done)
    numbers = tuple(shard.number for shard in shards)
    keys = [task.key for task in done]
    return [Partition(number, files, content_hash([keys, number, count], 24), numbers) for number in range(count)]


def outputs_of(done: Sequence[Done], shards: Sequence[Shard]) -> list[Output]:
    """Each shard with what the tasks wrote about its documents (`write_by_shard`)."""
    return [Output(shard, part) for shard, part in zip(shards, parts_of(done, len(shards), shards), strict=True)]


def task_options(step: Step) -> dict[str, Any]:
    """What the tasks of a step need to know, and what makes their results other ones: options, files outside, version."""
    config = step.model_dump(mode="json", exclude=set(step.decides))
    return {"config": config, "outside": step.files(), "version": step.version}


def write_by_shard(path: Path, records: NDArray[np.void], shards: Sequence[int]) -> None:
    """Write records with a `place`, partitioned by the shard of the place."""
    numbers, _ = shard_and_row(records["place"])
    write_partitioned(path, records, np.searchsorted(np.asarray(shards), numbers), len(shards))


def rows_of(places: Offsets, shard: Shard) -> Offsets:
    """Which of the rows that `shard.read` gives the places are."""
    return np.searchsorted(shard.places(), places)


def write_columns(path: Path, columns: dict[str, Any]) -> None:
    """Annotations of a shard as Parquet. Texts are not compressed: that would take longer than all else about them."""
    import pyarrow
    import pyarrow.parquet

    compression = {name: "none" if name == "text" else "lz4" for name in columns}
    pyarrow.parquet.write_table(
        pyarrow.table(columns), path, compression=compression, use_dictionary=False, write_statistics=False
    )


def nullable(values: NDArray[Any], missing: NDArray[np.bool_]) -> pyarrow.Array:
    """An Arrow column that is null where `missing`."""
    import pyarrow

    return pyarrow.array(values, mask=missing)
