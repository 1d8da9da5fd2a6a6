"""Verifies candidates: the Jaccard similarity of their shingle sets, inside each component.

    sets (a task a shard)     the sorted shingle set of every candidate, nothing of the other documents
    verify (a task a batch)   components -> clusters, the one that stays, and how alike each is to it

In a component of fewer than GIANT documents all pairs are compared, also those that met in no band (as Olmo 3 does,
arXiv 2512.13961, A.2.2); pairs that are already joined need no look. In a giant one that would be quadratic: there, band
by band, each document is compared with the NEIGHBOURS before it in its bucket, where a bucket is ordered by the key of
the next band, so that documents that agree in two bands are neighbours. That is at most bands · NEIGHBOURS
comparisons a document. (Olmo 3 bands giant components again, 200 x 31, which costs fifty times the first signature.)

Invariant: two documents of a cluster are joined by a chain of pairs whose true similarity is at least `min_jaccard`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow
from numpy.typing import NDArray

from ingot.data import keep
from ingot.data.clusters import MEMBER, choose, find, flatten, union
from ingot.data.engine.exchange import RECORDS, Partition, ShardPartition, rows_of, write_partitioned
from ingot.data.native import Hashes, Offsets, kernel
from ingot.data.outside import read_step
from ingot.data.steps.near_dedup.bands import CANDIDATE
from ingot.data.steps.near_dedup.minhash import band_keys, blocks, shingles_of, signatures_of, sorted_sets
from ingot.data.steps.near_dedup.options import NearDedupOptions
from ingot.data.text.texts import Texts

VERIFIED = np.dtype([*keep.FIELDS, ("component", "<i8"), ("shard", "<i8"), ("start", "<i8"), ("count", "<i8")])

GIANT = 500  # documents; as Olmo 3
NEIGHBOURS = 8
SETS = "sets.bin"


def write_sets(folder: Path, output: ShardPartition, options: dict[str, Any]) -> dict[str, Any]:
    """The shingle sets of a shard's candidates, and what the keep rule needs to know about them."""
    config = cast(NearDedupOptions, read_step(options["config"]))
    shard = output.shard
    candidates = output.part.read(CANDIDATE)
    records = np.zeros(len(candidates), VERIFIED)
    with (folder / SETS).open("wb") as file:
        if len(candidates):
            documents = shard.read(config.reads()).take(pyarrow.array(rows_of(candidates["location"], shard)))
            keep.describe(records, documents, candidates["location"], config)
            if config.min_jaccard is not None:
                texts = Texts.of(documents.column("text"))
                for first, last in blocks(texts):
                    sets = sorted_sets(*shingles_of(Texts(texts.data, texts.offsets[first : last + 1]), config))
                    records["count"][first:last] = [len(each) for each in sets]
                    file.writelines(each.tobytes() for each in sets)
    counts: Offsets = records["count"]
    records["start"] = np.cumsum(counts) - counts
    records["component"] = candidates["component"]
    records["shard"] = output.part.number
    write_partitioned(folder / RECORDS, records, candidates["batch"], options["batches"])
    return {"candidates": len(candidates)}


def verify_batch(folder: Path, batch: Partition, options: dict[str, Any]) -> dict[str, Any]:
    """Clusters of truly alike documents; `batch.also` are the files with the shingle sets, by shard."""
    config = cast(NearDedupOptions, read_step(options["config"]))
    records = batch.read(VERIFIED)
    records = records[np.lexsort((records["location"], records["component"]))]
    if config.min_jaccard is None:
        members, _ = choose(records, records["component"])
        batch.send_back(folder, members)
        return {"duplicates": len(members)}
    found = [np.zeros(0, MEMBER)]
    files: dict[int, Hashes] = {}
    for first, last in runs(records["component"]):
        component = records[first:last]
        sets = Sets(component, batch.also, files)
        roots = link_giant(sets, config) if last - first >= GIANT else link_all(sets, config.min_jaccard)
        members, leaders = choose(component, roots)
        rows = np.searchsorted(component["location"], members["location"])
        members["similarity"] = [
            jaccard(sets[row], sets[leader], 0.0) for row, leader in zip(rows, leaders, strict=True)
        ]
        found.append(members)
    together = np.concatenate(found)
    batch.send_back(folder, together)
    return {"duplicates": len(together)}


def runs(values: Offsets) -> Iterator[tuple[int, int]]:
    """Ranges of equal values in a sorted array."""
    changes = np.flatnonzero(values[1:] != values[:-1]) + 1
    edges = [0, *changes.tolist(), len(values)] if len(values) else []
    return pairwise(edges)


class Sets:
    """The shingle sets of one component, mapped from the files of the shards and read when looked at."""

    def __init__(self, records: NDArray[np.void], paths: tuple[Path, ...], files: dict[int, Hashes]) -> None:
        for shard in np.unique(records["shard"]).tolist():
            if shard not in files:
                files[shard] = np.asarray(np.memmap(paths[shard], np.uint64, mode="r"))
        self.where = list(zip(*(records[name].tolist() for name in ("shard", "start", "count")), strict=True))
        self.files = files

    def __len__(self) -> int:
        return len(self.where)

    def __getitem__(self, index: int) -> Hashes:
        shard, start, count = self.where[index]
        return self.files[shard][start : start + count]

    def flat(self, first: int, last: int) -> tuple[Hashes, Offsets]:
        """Some sets end to end, and where each begins."""
        sets = [self[index] for index in range(first, last)]
        return np.concatenate(sets), np.concatenate([[0], np.cumsum([len(each) for each in sets])]).astype(np.int64)


@kernel
def jaccard(first: Hashes, second: Hashes, minimum: float) -> float:
    """|intersection| / |union| of two sorted sets; 0 as soon as it cannot reach `minimum` any more."""
    total = len(first) + len(second)
    # common / (total - common) >= minimum exactly when common >= minimum * total / (1 + minimum)
    needed = minimum * total / (1 + minimum) - 1e-9
    one, two, common = 0, 0, 0
    while one < len(first) and two < len(second):
        if common + min(len(first) - one, len(second) - two) < needed:
            return 0.0
        left, right = first[one], second[two]
        common += left == right
        one += left <= right
        two += right <= left
    return common / (total - common) if total else 1.0


@kernel
def _link_pairs(flat: Hashes, offsets: Offsets, minimum: float, parent: Offsets) -> None:
    for one in range(len(parent)):
        for two in range(one + 1, len(parent)):
            if find(parent, one) != find(parent, two):
                first, second = flat[offsets[one] : offsets[one + 1]], flat[offsets[two] : offsets[two + 1]]
                if jaccard(first, second, minimum) >= minimum:
                    union(parent, one, two)
    flatten(parent)


def link_all(sets: Sets, minimum: float) -> Offsets:
    """The cluster of each document of a component: all pairs compared."""
    parent = np.arange(len(sets), dtype=np.int64)
    _link_pairs(*sets.flat(0, len(sets)), minimum, parent)
    return parent


def link_giant(sets: Sets, config: NearDedupOptions) -> Offsets:
    """The cluster of each document of a giant component: neighbours in the buckets compared."""
    assert config.min_jaccard is not None
    parent = np.arange(len(sets), dtype=np.int64)
    keys = np.empty((len(sets), config.bands), np.uint64)
    for first in range(0, len(sets), GIANT):
        last = min(first + GIANT, len(sets))
        signatures = signatures_of(*sets.flat(first, last), config.bands * config.rows)
        keys[first:last] = band_keys(signatures, config.bands, config.rows)
    for band in range(config.bands):
        order = np.lexsort((keys[:, (band + 1) % config.bands], keys[:, band]))
        for back in range(1, NEIGHBOURS + 1):
            ones, twos = order[:-back], order[back:]
            look = (keys[ones, band] == keys[twos, band]) & (parent[ones] != parent[twos])
            for one, two in zip(ones[look].tolist(), twos[look].tolist(), strict=True):
                if find(parent, one) == find(parent, two):
                    continue
                if jaccard(sets[one], sets[two], config.min_jaccard) >= config.min_jaccard:
                    union(parent, one, two)
            flatten(parent)
    return parent
