"""Finds documents with the same id, and stops the run or renames all but the first.

id_hashes   (a task a shard)       id -> 64-bit hash, location; partitioned by hash
id_groups   (a task a partition)   equal hashes, then the ids themselves: no false alarm
id_renamed  (a task a shard)       ids with `~2`, `~3` … where an id was seen before (in the order of the documents)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow

from ingot.data.columns import content_name
from ingot.data.engine.exchange import (
    RECORDS,
    Partition,
    partition_by_hash,
    partitions,
    partitions_for,
    write_partitioned,
)
from ingot.data.engine.shard import (
    COLUMNS,
    Shard,
    ids_path,
    location_of,
    read_ids,
    shard_and_row,
    write_columns,
    write_ids,
)
from ingot.data.engine.work import Work
from ingot.workspace.config import content_hash
from ingot.workspace.errors import DataError
from ingot.workspace.files import read_json, write_json

RECORD = np.dtype([("hash", "<u8"), ("location", "<i8")])
GROUPS = "groups.json"
ROUNDS = 5  # of renaming: a new name may be another document's own id
NAMED = 3


@dataclass(frozen=True)
class Renaming:
    """A shard and the rows that get a new id: (row, how many documents had the id before)."""

    key: str
    shard: Shard
    rows: tuple[tuple[int, int], ...]


def unique_ids(shards: list[Shard], policy: str, work: Work) -> tuple[list[Shard], int]:
    """The shards with ids that are unique, and how many were renamed; `policy` is `stop` or `rename`."""
    renamed = 0
    for _ in range(ROUNDS):
        groups = repeated_ids(shards, work)
        count = sum(len(locations) - 1 for _, locations in groups)
        if not groups:
            return shards, renamed
        names = ", ".join(repr(name) for name, _ in groups[:NAMED]) + (" …" if len(groups) > NAMED else "")
        if policy == "stop":
            raise DataError(
                f"{len(groups):,} ids occur more than once ({count:,} documents too many): {names}",
                place="curate: sources",
                fix="give every document an id of its own, or set on_duplicate_id: rename",
            )
        if not renamed:
            work.progress.say(f"{len(groups):,} ids occur more than once; {count:,} documents renamed: {names}")
        renamed += count
        shards = rename(shards, groups, work)
    raise DataError("ids are not unique after renaming them again and again", place="curate: sources")


def repeated_ids(shards: Sequence[Shard], work: Work) -> list[tuple[str, list[int]]]:
    """Every id that occurs more than once, with the locations of its documents, both ascending."""
    count = partitions_for(sum(shard.rows for shard in shards) * RECORD.itemsize)
    keyed = [Renaming(content_hash([s.number, content_name(s.path_of("id"))], 24), s, ()) for s in shards]
    hashed = work.run("id_hashes", hash_ids, keyed, {"partitions": count})
    parts = partitions(hashed, count, shards, [ids_path(shard.path_of("id")) for shard in shards])
    found = [tuple(row) for done in work.run("id_groups", group_ids, parts) for row in read_json(done.file(GROUPS))]
    return sorted((str(name), list(locations)) for name, locations in found)


def hash_ids(folder: Path, item: Renaming, options: dict[str, int]) -> dict[str, Any]:
    """Hash the ids of a shard."""
    ids = item.shard.read(["id"], removed=True).column("id").to_pylist()
    records = np.zeros(len(ids), RECORD)
    hashes = b"".join(blake2b(name.encode(), digest_size=8).digest() for name in ids)
    records["hash"] = np.frombuffer(hashes, "<u8")
    records["location"] = location_of(item.shard.number, np.arange(len(ids), dtype=np.int64))
    count = options["partitions"]
    write_partitioned(folder / RECORDS, records, partition_by_hash(records["hash"], count), count)
    return {}


def group_ids(folder: Path, part: Partition, _: None) -> dict[str, Any]:
    """The ids of a partition that occur more than once; `part.also` are the files with the ids of the shards."""
    records = part.read(RECORD)
    records = records[np.lexsort((records["location"], records["hash"]))]
    same = records["hash"][1:] == records["hash"][:-1]
    suspects = records["location"][np.flatnonzero(np.r_[same, False] | np.r_[False, same])]
    by_id: dict[str, list[int]] = {}
    shards, rows = shard_and_row(suspects)
    for number in np.unique(shards).tolist():
        here = np.flatnonzero(shards == number)
        for name, location in zip(read_ids(part.also[number], rows[here]), suspects[here].tolist(), strict=True):
            by_id.setdefault(name, []).append(location)
    write_json(folder / GROUPS, [[name, sorted(p)] for name, p in sorted(by_id.items()) if len(p) > 1])
    return {}


def rename(shards: Sequence[Shard], groups: list[tuple[str, list[int]]], work: Work) -> list[Shard]:
    """Shards in which every document but the first of an id has a number behind it."""
    rows: dict[int, list[tuple[int, int]]] = {}
    for _, locations in groups:
        for before, location in enumerate(locations[1:], start=1):
            rows.setdefault(location >> 32, []).append((location & 0xFFFFFFFF, before))
    items = []
    for number, pairs in sorted(rows.items()):
        key = content_hash([content_name(shards[number].path_of("id")), sorted(pairs)], 24)
        items.append(Renaming(key, shards[number], tuple(sorted(pairs))))
    renamed = list(shards)
    for item, done in zip(items, work.run("id_renamed", rename_rows, items), strict=True):
        renamed[item.shard.number] = item.shard.annotated(["id"], done.file(COLUMNS), done.key)
    return renamed


def rename_rows(folder: Path, item: Renaming, _: None) -> dict[str, Any]:
    """Write the ids of a shard with some of them renamed."""
    ids = item.shard.read(["id"], removed=True).column("id").to_pylist()
    for row, before in item.rows:
        ids[row] = f"{ids[row]}~{before + 1}"
    column = pyarrow.array(ids, pyarrow.string())
    write_columns(folder / COLUMNS, {"id": column})
    write_ids(folder / COLUMNS, column)
    return {}
