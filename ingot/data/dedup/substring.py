"""The tasks of the step `substring_dedup`; steps/substring_dedup.py says what they are for and in which order they run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ingot.data.dedup.substring_anchors import Anchors, find_anchors
from ingot.data.dedup.substring_groups import ORDER_BITS, STRIKE, context_type, contexts_of, strikes_of
from ingot.data.dedup.substring_intervals import Cut, Intervals, cover, cut, union
from ingot.data.engine.exchange import partition_by_hash, read_partition, write_partitioned
from ingot.data.engine.shard import Shard
from ingot.data.engine.work import Done
from ingot.data.text.texts import Texts
from ingot.data.text.words import words_of
from ingot.workspace.config import content_hash

if TYPE_CHECKING:
    import pyarrow

SEEN = np.dtype([("hash", np.uint64), ("shard", np.int32), ("count", np.int32)])
HASH = np.dtype([("hash", np.uint64)])
ANCHOR_FILES = ("hashes", "places", "echoes")


@dataclass(frozen=True)
class ShardItem:
    """A shard, its index among all, and what earlier phases wrote for it."""

    shard: Shard
    index: int
    inputs: tuple[Done, ...] = ()
    anchors: Path | None = None

    @property
    def key(self) -> str:
        return content_hash([self.shard.key, self.index, [done.key for done in self.inputs]])

    @property
    def bytes(self) -> int:
        return self.shard.bytes

    def after(self, anchored: Sequence[Done], inputs: Sequence[Done]) -> ShardItem:
        """The same shard in a later phase."""
        return ShardItem(self.shard, self.index, tuple(inputs), anchored[self.index].folder)

    def texts(self) -> Texts:
        return Texts.of(self.shard.read(["text"]).column("text"))

    def found(self) -> Anchors:
        """What the phase `anchors` found in this shard."""
        assert self.anchors is not None
        return Anchors(*(np.load(self.anchors / f"{name}.npy") for name in ANCHOR_FILES))


@dataclass(frozen=True)
class PartitionItem:
    """One partition of what the tasks of a phase wrote."""

    part: int
    inputs: tuple[Done, ...]

    @property
    def key(self) -> str:
        return content_hash([self.part, [done.key for done in self.inputs]])


def parts_of(count: int, inputs: Sequence[Done]) -> list[PartitionItem]:
    return [PartitionItem(part, tuple(inputs)) for part in range(count)]


def find(folder: Path, item: ShardItem, options: dict[str, Any]) -> dict[str, Any]:
    """Phase `anchors`."""
    anchors = find_anchors(item.texts(), options["min_bytes"])
    for name in ANCHOR_FILES:
        np.save(folder / f"{name}.npy", getattr(anchors, name))
    hashes, counts = np.unique(anchors.hashes, return_counts=True)
    seen = np.zeros(len(hashes), SEEN)
    seen["hash"], seen["shard"], seen["count"] = hashes, item.index, counts
    parts = options["parts"]
    write_partitioned(folder / "seen", seen, partition_by_hash(hashes, parts), parts)
    return {"anchors": len(anchors.hashes), "echoes": len(anchors.echoes)}


def select_repeated(folder: Path, item: PartitionItem, options: dict[str, Any]) -> dict[str, Any]:
    """Phase `repeated`."""
    seen = read_partition([done.file("seen") for done in item.inputs], item.part, SEEN)
    hashes, inverse = np.unique(seen["hash"], return_inverse=True)
    repeated = seen[np.bincount(inverse, seen["count"], len(hashes))[inverse] > 1]
    records = np.zeros(len(repeated), HASH)
    records["hash"] = repeated["hash"]
    write_partitioned(folder / "repeated", records, repeated["shard"].astype(np.int64), options["shards"])
    return {"anchors": int(repeated["count"].sum())}


def collect(folder: Path, item: ShardItem, options: dict[str, Any]) -> dict[str, Any]:
    """Phase `contexts`."""
    anchors = item.found()
    repeated = read_partition([done.file("repeated") for done in item.inputs], item.index, HASH)["hash"]
    wanted = np.flatnonzero(np.isin(anchors.hashes, repeated))
    contexts = contexts_of(item.texts(), anchors, wanted, item.index, options["min_bytes"])
    parts = options["parts"]
    write_partitioned(folder / "contexts", contexts, partition_by_hash(contexts["hash"], parts), parts)
    return {"contexts": len(contexts)}


def strike(folder: Path, item: PartitionItem, options: dict[str, Any]) -> dict[str, Any]:
    """Phase `strikes`."""
    length = options["min_bytes"]
    contexts = read_partition([done.file("contexts") for done in item.inputs], item.part, context_type(length))
    strikes = strikes_of(contexts, length, options["keep_first"])
    write_partitioned(folder / "strikes", strikes, strikes["start"] >> ORDER_BITS, options["shards"])
    return {"strikes": len(strikes)}


def echo_intervals(echoes: NDArray[np.int64], length: int, keep_first: bool) -> Intervals:
    """What runs of echoes strike: all that repeats with the period, without its first L bytes if one copy stays."""
    first, last, period = echoes.T
    return np.stack([first - period + (length if keep_first else 0), last + length], axis=1)


def rewrite(folder: Path, item: ShardItem, options: dict[str, Any]) -> dict[str, Any]:
    """Phase `cut`."""
    import pyarrow.parquet

    texts = item.texts()
    strikes = read_partition([done.file("strikes") for done in item.inputs], item.index, STRIKE)
    elsewhere = np.stack([strikes["start"], strikes["end"]], axis=1) - (item.index << ORDER_BITS)
    here = echo_intervals(item.found().echoes, options["min_bytes"], options["keep_first"])
    offsets = texts.offsets - texts.offsets[0]
    intervals = cover(union(np.concatenate([elsewhere, here]), offsets), offsets, options["coverage"])
    result = cut(texts, intervals)
    # Pages are compressed lightly and without a dictionary: every text is different.
    pyarrow.parquet.write_table(
        columns_of(result), folder / "columns.parquet", compression="lz4", use_dictionary=False, write_statistics=False
    )
    return {"bytes": int(result.bytes.sum()), "documents": int((result.bytes > 0).sum())}


def columns_of(result: Cut) -> pyarrow.Table:
    """The columns of the step. Words are counted where something was cut; elsewhere nothing is to be decided."""
    import pyarrow

    count = len(result.texts)
    text = result.texts.column()
    untouched = result.bytes == 0
    touched = text.filter(pyarrow.array(~untouched))
    words = np.zeros(count, np.int64)
    words[~untouched] = words_of(Texts.of(touched), "whitespace").per_text()
    boundaries = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(result.documents, minlength=count), out=boundaries[1:])
    pairs = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(result.spans.reshape(-1)), 2)
    return pyarrow.table(
        {
            "text": text,
            "substring_bytes": pyarrow.array(result.bytes),
            "substring_words": pyarrow.array(words, mask=untouched),
            "_substring_spans": pyarrow.ListArray.from_arrays(pyarrow.array(boundaries), pairs),
        }
    )
