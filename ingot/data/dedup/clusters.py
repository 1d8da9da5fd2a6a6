"""From groups of copies to the columns of the shards: which document stays, which goes, and for which one.

    choose    records of documents with a group number -> members: place, the one that stays, name and size of the cluster
    columns   the members of a shard -> a Parquet file as long as the shard

A cluster is named by the hash of the id of the document that stays, so that its name does not depend on the shards.

Invariant: of every cluster exactly one member has `kept` equal to its own place; groups of one are no clusters.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.data.dedup import keep
from ingot.data.dedup.between import Output, nullable, rows_of, write_columns
from ingot.data.text.arrays import Offsets

MEMBER = np.dtype(
    [("place", "<i8"), ("kept", "<i8"), ("cluster", "<i8"), ("size", "<i8"), ("similarity", "<f4")]  # to the kept one
)


def choose(records: NDArray[np.void], groups: Offsets) -> tuple[NDArray[np.void], Offsets]:
    """Members of all groups of two or more (similarity not filled in), and for each the index of its kept record."""
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
    members["place"], members["size"] = records["place"][order], sizes
    members["kept"], members["cluster"] = records["place"][leaders], records["name"][leaders]
    members["similarity"] = np.nan
    return members, leaders


def write_member_columns(folder: Path, output: Output, names: dict[str, str]) -> dict[str, Any]:
    """The columns of a shard; `names` says what they are called: cluster, size, place and perhaps similarity."""
    shard = output.shard
    members = output.part.read(MEMBER)
    rows = rows_of(members["place"], shard)
    total = len(shard.rows_alive())
    cluster, size, kept = np.zeros(total, np.int64), np.ones(total, np.int32), np.full(total, -1, np.int64)
    similarity = np.full(total, np.nan, np.float32)
    cluster[rows], size[rows] = members["cluster"], members["size"]
    goes = members["kept"] != members["place"]
    kept[rows[goes]], similarity[rows[goes]] = members["kept"][goes], members["similarity"][goes]
    columns = {
        names["cluster"]: nullable(cluster, size == 1),
        names["size"]: nullable(size, np.zeros(total, bool)),
        names["place"]: nullable(kept, kept < 0),
    }
    if "similarity" in names:
        columns[names["similarity"]] = nullable(similarity, np.isnan(similarity))
    write_columns(folder / "columns.parquet", columns)
    return {"removed": int(goes.sum())}
