"""Finds candidates for near duplicates: documents that share a MinHash band, and the connected components of those.

    signatures (a task a shard)    text -> a key for each band, into the exchange
    buckets (a task a partition)   equal keys meet; each bucket becomes a star of pairs, its first member in the middle
    components (one task)          union-find over all pairs: the only step that sees the whole corpus

A bucket of m documents gives m - 1 pairs, however large it is. What `components` holds is two numbers for each
document that met another one.

Invariant: two documents are in one component exactly when a chain of shared band keys leads from one to the other.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ingot.data.clusters import components
from ingot.data.engine.exchange import RECORDS, Partition, partition_by_hash, read_partition, write_partitioned
from ingot.data.engine.shard import Shard
from ingot.data.native import Offsets
from ingot.data.outside import read_step
from ingot.data.steps.near_dedup.minhash import band_keys, blocks, shingles_of, signatures_of
from ingot.data.steps.near_dedup.options import NearDedupOptions
from ingot.data.text.hashing import first_equal
from ingot.data.text.texts import Texts

BAND = np.dtype([("key", "<u8"), ("location", "<i8")])
EDGE = np.dtype([("location", "<i8"), ("root", "<i8")])
CANDIDATE = np.dtype([("location", "<i8"), ("component", "<i8"), ("batch", "<i8")])

BATCH_DOCUMENTS = 2_000  # candidates of one task of verification, unless a component is larger: 50 MB of mapped files


def write_band_keys(folder: Path, shard: Shard, options: dict[str, Any]) -> dict[str, Any]:
    """The band keys of a shard's documents; a document without shingles has none."""
    config = cast(NearDedupOptions, read_step(options["config"]))
    texts, locations = Texts.of(shard.read(["text"]).column("text")), shard.locations()
    found = [np.zeros(0, BAND)]
    for first, last in blocks(texts):
        shingles, offsets = shingles_of(Texts(texts.data, texts.offsets[first : last + 1]), config)
        keys = band_keys(signatures_of(shingles, offsets, config.bands * config.rows), config.bands, config.rows)
        filled = np.diff(offsets) > 0
        records = np.empty((int(filled.sum()), config.bands), BAND)
        records["key"], records["location"] = keys[filled], locations[first:last][filled, None]
        found.append(records.reshape(-1))
    together = np.concatenate(found)
    partitions = partition_by_hash(together["key"], options["partitions"])
    write_partitioned(folder / RECORDS, together, partitions, options["partitions"])
    return {"documents": len(texts)}


def link_buckets(folder: Path, part: Partition, options: None) -> dict[str, Any]:
    """The pairs of a partition, as few as connect what meets in it."""
    records = part.read(BAND)
    keys = np.ascontiguousarray(records["key"])
    first = first_equal(keys, keys)
    later = np.flatnonzero(first != np.arange(len(records)))
    edges = forest(records["location"][later], records["location"][first[later]])
    write_partitioned(folder / RECORDS, edges, np.zeros(len(edges), np.int64), 1)
    return {"buckets": len(np.unique(first[later])), "pairs": len(edges)}


def forest(firsts: Offsets, seconds: Offsets) -> NDArray[np.void]:
    """For each location in the pairs that is not the smallest of its component: the smallest. Sorted by location."""
    locations, index = np.unique(np.concatenate([firsts, seconds]), return_inverse=True)
    roots = components(index[: len(firsts)], index[len(firsts) :], len(locations))
    edges = np.zeros(len(locations), EDGE)
    edges["location"], edges["root"] = locations, locations[roots]
    return edges[edges["location"] != edges["root"]]


def find_components(folder: Path, part: Partition, options: None) -> dict[str, Any]:
    """The components of the whole corpus, and which task of verification looks at which."""
    edges = np.zeros(0, EDGE)
    for path in part.files:  # one file at a time: never more than one edge a document and the edges of a file
        more = read_partition([path], 0, EDGE)
        edges = forest(*(np.concatenate([edges[name], more[name]]) for name in ("location", "root")))
    roots, sizes = np.unique(edges["root"], return_counts=True)
    sizes += 1  # the root itself
    starts = np.cumsum(sizes) - sizes
    batches, batch = np.unique(starts // BATCH_DOCUMENTS, return_inverse=True)
    members = np.zeros(len(edges) + len(roots), CANDIDATE)
    members["location"] = np.concatenate([roots, edges["location"]])
    members["component"] = np.concatenate([roots, edges["root"]])
    members["batch"] = batch[np.searchsorted(roots, members["component"])]
    members = members[np.argsort(members["location"])]
    part.send_back(folder, members)
    return {
        "components": len(roots),
        "candidates": len(members),
        "largest": int(sizes.max(initial=0)),
        "batches": len(batches),
    }
