"""The tasks of the step `substring_dedup` (steps/substring_dedup.py says in which order they run)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from numpy.typing import NDArray

from ingot.data.engine.exchange import RECORDS, Partition, ShardPartition, partition_by_hash, write_partitioned
from ingot.data.engine.shard import COLUMNS, Shard, write_columns
from ingot.data.steps.substring_dedup.anchors import Anchors, find_anchors
from ingot.data.steps.substring_dedup.groups import ORDER_BITS, STRIKE, context_type, contexts_of, strikes_of
from ingot.data.steps.substring_dedup.intervals import CutTexts, Intervals, cover, cut, union
from ingot.data.text.texts import Texts
from ingot.data.text.words import words_of

SEEN = np.dtype([("hash", np.uint64), ("shard", np.int32), ("count", np.int32)])
HASH = np.dtype([("hash", np.uint64)])
ANCHOR_FILES = ("hashes", "windows", "echoes")


def texts_of(shard: Shard) -> Texts:
    """The texts of a shard."""
    return Texts.of(shard.read(["text"]).column("text"))


def anchors_of(item: ShardPartition) -> Anchors:
    """What the phase `anchors` found in this shard."""
    return Anchors(*(np.load(item.part.also[0] / f"{name}.npy") for name in ANCHOR_FILES))


def find(folder: Path, shard: Shard, options: dict[str, Any]) -> dict[str, Any]:
    """Phase `anchors`."""
    anchors = find_anchors(texts_of(shard), options["min_bytes"])
    for name in ANCHOR_FILES:
        np.save(folder / f"{name}.npy", getattr(anchors, name))
    hashes, counts = np.unique(anchors.hashes, return_counts=True)
    seen = np.zeros(len(hashes), SEEN)
    seen["hash"], seen["shard"], seen["count"] = hashes, shard.number, counts
    count = options["partitions"]
    write_partitioned(folder / RECORDS, seen, partition_by_hash(hashes, count), count)
    return {"anchors": len(anchors.hashes), "echoes": len(anchors.echoes)}


def select_repeated(folder: Path, part: Partition, options: None) -> dict[str, Any]:
    """Phase `repeated`."""
    seen = part.read(SEEN)
    hashes, inverse = np.unique(seen["hash"], return_inverse=True)
    repeated = seen[np.bincount(inverse, seen["count"], len(hashes))[inverse] > 1]
    records = np.zeros(len(repeated), HASH)
    records["hash"] = repeated["hash"]
    part.send_back(folder, records, repeated["shard"])
    return {"anchors": int(repeated["count"].sum())}


def collect(folder: Path, item: ShardPartition, options: dict[str, Any]) -> dict[str, Any]:
    """Phase `contexts`."""
    anchors, repeated = anchors_of(item), item.part.read(HASH)["hash"]
    wanted = np.flatnonzero(np.isin(anchors.hashes, repeated))
    contexts = contexts_of(texts_of(item.shard), anchors, wanted, item.shard.number, options["min_bytes"])
    count = options["partitions"]
    write_partitioned(folder / RECORDS, contexts, partition_by_hash(contexts["hash"], count), count)
    return {"contexts": len(contexts)}


def strike(folder: Path, part: Partition, options: dict[str, Any]) -> dict[str, Any]:
    """Phase `strikes`."""
    length = options["min_bytes"]
    strikes = strikes_of(part.read(context_type(length)), length, options["keep_first"])
    part.send_back(folder, strikes, strikes["start"] >> ORDER_BITS)
    return {"strikes": len(strikes)}


def echo_intervals(echoes: NDArray[np.int64], length: int, keep_first: bool) -> Intervals:
    """What runs of echoes strike: all that repeats with the period, without its first L bytes if one copy stays."""
    first, last, period = echoes.T
    return np.stack([first - period + (length if keep_first else 0), last + length], axis=1)


def rewrite(folder: Path, item: ShardPartition, options: dict[str, Any]) -> dict[str, Any]:
    """Phase `cut`."""
    texts, strikes = texts_of(item.shard), item.part.read(STRIKE)
    elsewhere = np.stack([strikes["start"], strikes["end"]], axis=1) - (item.shard.number << ORDER_BITS)
    here = echo_intervals(anchors_of(item).echoes, options["min_bytes"], options["keep_first"])
    offsets = texts.offsets - texts.offsets[0]
    intervals = cover(union(np.concatenate([elsewhere, here]), offsets), offsets, options["coverage"])
    result = cut(texts, intervals)
    write_columns(folder / COLUMNS, columns_of(result))
    return {"bytes": int(result.bytes.sum()), "documents": int((result.bytes > 0).sum())}


def columns_of(result: CutTexts) -> dict[str, Any]:
    """The columns of the step. Words are counted where something was cut; elsewhere nothing is to be decided."""
    count = len(result.texts)
    text = result.texts.column()
    untouched = result.bytes == 0
    touched = text.filter(pyarrow.array(~untouched))
    words = np.zeros(count, np.int64)
    words[~untouched] = words_of(Texts.of(touched), "whitespace").per_text()
    boundaries = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(result.documents, minlength=count), out=boundaries[1:])
    pairs = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(result.spans.reshape(-1)), 2)
    return {
        "text": text,
        "substring_bytes": pyarrow.array(result.bytes),
        "substring_words": pyarrow.array(words, mask=untouched),
        "_substring_spans": pyarrow.ListArray.from_arrays(pyarrow.array(boundaries), pairs),
    }
