"""Groups of copies: connected components by union-find, the document of each group that stays, and the columns of the shards.

    components   pairs -> the smallest member of each one's component
    choose       records of documents with a group number -> members: location, leader (which stays), name and size of the cluster
    columns      the members of a shard -> a Parquet file as long as the shard

A cluster is named by the hash of the id of the document that stays, so that its name does not depend on the shards.

Invariant: of every cluster exactly one member is its own leader; groups of one are no clusters.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from numpy.typing import NDArray

from ingot.data import keep
from ingot.data.engine.exchange import ShardPartition, rows_of
from ingot.data.engine.shard import COLUMNS, write_columns
from ingot.data.native import Offsets, kernel


@kernel
def find(parent: Offsets, item: int) -> int:
    """The root of the set that `item` is in; the path is halved on the way."""
    while parent[item] != item:
        parent[item] = parent[parent[item]]
        item = int(parent[item])
    return item


@kernel
def union(parent: Offsets, first: int, second: int) -> None:
    """Join the sets of two items; the smaller root stays a root."""
    first, second = find(parent, first), find(parent, second)
    parent[max(first, second)] = min(first, second)


@kernel
def flatten(parent: Offsets) -> None:
    """Make every item point to its root."""
    for item in range(len(parent)):
        parent[item] = find(parent, item)


@kernel
def _join_all(parent: Offsets, firsts: Offsets, seconds: Offsets) -> None:
    for index in range(len(firsts)):
        union(parent, firsts[index], seconds[index])
    flatten(parent)


def components(firsts: Offsets, seconds: Offsets, count: int) -> Offsets:
    """For each of 0 … count-1 the smallest item of its component under the given pairs."""
    parent = np.arange(count, dtype=np.int64)
    _join_all(parent, firsts, seconds)
    return parent


MEMBER = np.dtype(
    [
        ("location", "<i8"),
        ("leader", "<i8"),
        ("cluster", "<i8"),
        ("size", "<i8"),
        ("similarity", "<f4"),  # to the leader
    ]
)


def choose(records: NDArray[np.void], groups: Offsets) -> tuple[NDArray[np.void], Offsets]:
    """Members of all groups of two or more (similarity not filled in), and for each the index of its leader's record."""
    order = keep.best_first(records)
    order = order[np.argsort(groups[order], kind="stable")]  # group by group, the best of each in front
    sorted_groups = groups[order]
    leads = np.ones(len(order), bool)
    leads[1:] = sorted_groups[1:] != sorted_groups[:-1]
    group = np.cumsum(leads) - 1
    sizes = np.bincount(group, minlength=1)[group]
    leaders = order[np.flatnonzero(leads)[group]]
    order, leaders, sizes = order[sizes > 1], leaders[sizes > 1], sizes[sizes > 1]
    members = np.zeros(len(order), MEMBER)
    members["location"], members["size"] = records["location"][order], sizes
    members["leader"], members["cluster"] = records["location"][leaders], records["name"][leaders]
    members["similarity"] = np.nan
    return members, leaders


def write_member_columns(folder: Path, output: ShardPartition, names: dict[str, str]) -> dict[str, Any]:
    """The columns of a shard; `names` says what they are called: cluster, size, location and perhaps similarity."""
    shard = output.shard
    members = output.part.read(MEMBER)
    rows = rows_of(members["location"], shard)
    total = len(shard.rows_alive())
    cluster, size, leader = np.zeros(total, np.int64), np.ones(total, np.int32), np.full(total, -1, np.int64)
    similarity = np.full(total, np.nan, np.float32)
    cluster[rows], size[rows] = members["cluster"], members["size"]
    goes = members["leader"] != members["location"]
    leader[rows[goes]], similarity[rows[goes]] = members["leader"][goes], members["similarity"][goes]
    columns = {
        names["cluster"]: pyarrow.array(cluster, mask=size == 1),
        names["size"]: pyarrow.array(size),
        names["location"]: pyarrow.array(leader, mask=leader < 0),
    }
    if "similarity" in names:
        columns[names["similarity"]] = pyarrow.array(similarity, mask=np.isnan(similarity))
    write_columns(folder / COLUMNS, columns)
    return {"removed": int(goes.sum())}
