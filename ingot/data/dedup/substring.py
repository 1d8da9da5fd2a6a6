"""Step `substring_dedup`: cut out every passage of L bytes or more that stands more than once in the corpus.

    anchors   a shard: where its windows of L bytes are anchored (substring_anchors.py), and the hashes of the grams
    repeated  a part of all hashes: those that more than one anchor has, back to the shards that have them
    contexts  a shard: the bytes around such anchors, to the part that the gram's hash belongs to
    strikes   a part of all contexts: which windows are equal byte for byte, back to their shards (substring_groups.py)
    cut       a shard: the texts without what was struck (substring_intervals.py)

The result is what a suffix array over the whole corpus would give: equal windows have anchors with equal grams at equal
distances, so they are always compared, and they are compared by their bytes. A suffix array sorts every byte of the
corpus and needs 5 to 9 bytes of memory for each; here one anchor for some 170 bytes is sorted, and a task holds a shard
or a partition.

Invariant: the result does not depend on how the documents are divided into shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ingot.data.dedup.substring_anchors import Anchors, find_anchors
from ingot.data.dedup.substring_config import SubstringDedupStep
from ingot.data.dedup.substring_groups import ORDER_BITS, STRIKE, context_type, contexts_of, strikes_of
from ingot.data.dedup.substring_intervals import Cut, Intervals, cover, cut, union
from ingot.data.engine.exchange import partition_by_hash, partitions_for, read_partition, write_partitioned
from ingot.data.engine.shard import Shard
from ingot.data.engine.work import Done, Work
from ingot.data.step import AcrossDocuments, Rule, at_least, numbers
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
class PartItem:
    """One partition of what the tasks of a phase wrote."""

    part: int
    inputs: tuple[Done, ...]

    @property
    def key(self) -> str:
        return content_hash([self.part, [done.key for done in self.inputs]])


def _parts(count: int, inputs: Sequence[Done]) -> list[PartItem]:
    return [PartItem(part, tuple(inputs)) for part in range(count)]


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


def select_repeated(folder: Path, item: PartItem, options: dict[str, Any]) -> dict[str, Any]:
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


def strike(folder: Path, item: PartItem, options: dict[str, Any]) -> dict[str, Any]:
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


class SubstringDedup(AcrossDocuments[SubstringDedupStep]):
    """Cuts repeated passages out of the texts."""

    def annotate(self, shards: Sequence[Shard], work: Work) -> list[Path]:
        config = self.config
        length: dict[str, Any] = {"min_bytes": config.min_bytes}

        # One anchor for (L - k + 2) / 2 bytes, which is L / 3: room for each of them in the partitions.
        seen_bytes = 3 * sum(shard.bytes for shard in shards) // config.min_bytes * SEEN.itemsize
        items = [ShardItem(shard, index) for index, shard in enumerate(shards)]
        parts = partitions_for(4 * seen_bytes)  # finding equal ones takes several times the memory
        anchored = self._run(work, "anchors", find, items, length | {"parts": parts})
        repeated = self._run(work, "repeated", select_repeated, _parts(parts, anchored), {"shards": len(shards)})

        parts = partitions_for(
            sum(done.report["anchors"] for done in repeated) * context_type(config.min_bytes).itemsize
        )
        items = [item.after(anchored, repeated) for item in items]
        collected = self._run(work, "contexts", collect, items, length | {"parts": parts})
        options = length | {"keep_first": config.keep_first, "shards": len(shards)}
        struck = self._run(work, "strikes", strike, _parts(parts, collected), options)

        options = length | {"keep_first": config.keep_first, "coverage": config.coverage}
        cuts = self._run(work, "cut", rewrite, [item.after(anchored, struck) for item in items], options)
        return [done.file("columns.parquet") for done in cuts]

    def _run(self, work: Work, name: str, function: Any, items: Sequence[Any], options: dict[str, Any]) -> list[Done]:
        return work.run(f"substring-{name}", function, items, options, version=self.version)

    def rules(self, columns: pyarrow.Table) -> list[Rule]:
        rule = at_least("words left after cutting repeats", numbers(columns, "substring_words"), self.config.min_words)
        spans: list[list[tuple[int, int]]] = [[] for _ in rule.broken]
        for row in np.flatnonzero(rule.broken).tolist():
            spans[row] = [(start, end) for start, end in columns.column("_substring_spans")[row].as_py()]
        return [replace(rule, spans=spans)]
