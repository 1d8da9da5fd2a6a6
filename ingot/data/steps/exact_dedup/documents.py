"""Finds documents with the same text by 128-bit hashes; one copy of each stays.

    hashes (a task a shard)       text -> hash, location and what the keep rule needs
    groups (a task a partition)   equal hashes; the copy that stays
    columns (a task a shard)      copy_cluster, copy_count, _copy_location

Invariant: exactly one document of every group of equal texts stays, whichever way the documents are cut into shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow

from ingot.data import keep
from ingot.data.clusters import choose, write_member_columns
from ingot.data.engine.exchange import (
    RECORDS,
    Partition,
    partition_by_hash,
    partitions,
    partitions_for,
    shard_partitions,
    write_partitioned,
)
from ingot.data.engine.shard import COLUMNS, Shard
from ingot.data.engine.work import Work
from ingot.data.native import Hashes
from ingot.data.outside import read_step
from ingot.data.step import Rule
from ingot.data.steps.exact_dedup.options import ExactDedupOptions
from ingot.data.text.hashing import first_equal, hash_spans
from ingot.data.text.texts import Texts

HASHED = np.dtype([("high", "<u8"), ("low", "<u8"), *keep.FIELDS])
NAMES = {"cluster": "copy_cluster", "size": "copy_count", "location": "_copy_location"}


def annotate(step: ExactDedupOptions, shards: Sequence[Shard], work: Work) -> list[Path]:
    """For each shard a file with the columns."""
    count = partitions_for(sum(shard.rows for shard in shards) * HASHED.itemsize)
    options = step.task_options() | {"partitions": count}
    hashed = work.run("exact_hashes", hash_documents, shards, options)
    groups = work.run("exact_groups", group_documents, partitions(hashed, count, shards))
    columns = work.run("exact_columns", write_member_columns, shard_partitions(groups, shards), NAMES)
    return [done.file(COLUMNS) for done in columns]


def decide(columns: pyarrow.Table) -> list[Rule]:
    """Every copy but one goes."""
    leaders = columns.column("_copy_location").combine_chunks().fill_null(-1).to_numpy()
    copies = columns.column("copy_count").combine_chunks().fill_null(1).to_numpy()
    return [Rule("same text as another document", leaders >= 0, copies, "copies", partners=leaders)]


def hash_texts(texts: Texts, *, exact: bool) -> tuple[Hashes, Hashes]:
    """The two 64-bit hashes of every text."""
    return hash_spans(texts.data, texts.offsets[:-1], texts.offsets[1:], exact=exact)


def hash_documents(folder: Path, shard: Shard, options: dict[str, Any]) -> dict[str, Any]:
    """Hash the documents of a shard."""
    config = cast(ExactDedupOptions, read_step(options["config"]))
    documents = shard.read(config.reads())
    records = np.zeros(len(documents), HASHED)
    keep.describe(records, documents, shard.locations(), config)
    texts = Texts.of(documents.column("text"))
    records["high"], records["low"] = hash_texts(texts, exact=config.compare == "exact")
    partitions = partition_by_hash(records["high"], options["partitions"])
    write_partitioned(folder / RECORDS, records, partitions, options["partitions"])
    return {"documents": len(documents)}


def group_documents(folder: Path, part: Partition, options: None) -> dict[str, Any]:
    """Find equal hashes and the copy that stays; records only for documents that have a copy."""
    records = part.read(HASHED)
    first = first_equal(np.ascontiguousarray(records["high"]), np.ascontiguousarray(records["low"]))
    repeated = np.bincount(first, minlength=len(records))[first] > 1
    members, _ = choose(records[repeated], first[repeated])
    part.send_back(folder, members)
    return {"copies": len(members)}
