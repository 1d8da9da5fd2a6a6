"""The step `near_dedup` removes near duplicates by MinHash: the phases in order, and the rule.

    band keys -> buckets -> components      bands.py: which documents may be alike
    shingle sets -> clusters                verify.py: which are, and which stays
    columns                                 clusters.py: a file for each shard

Invariant: the clusters do not depend on how the documents are cut into shards; no phase joins the whole corpus in
memory except the union-find, which holds two numbers for each document that met another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow

from ingot.data.clusters import write_member_columns
from ingot.data.engine.exchange import partitions, partitions_for, shard_partitions
from ingot.data.engine.shard import COLUMNS, Shard
from ingot.data.engine.work import Work
from ingot.data.keep import KeepConfig as KeepConfig
from ingot.data.step import Report, Rule, numbers
from ingot.data.steps.near_dedup.bands import BAND, find_components, link_buckets, write_band_keys
from ingot.data.steps.near_dedup.options import NearDedupOptions
from ingot.data.steps.near_dedup.verify import SETS, verify_batch, write_sets
from ingot.workspace.files import fingerprint as fingerprint

NAMES = {
    "cluster": "duplicate_cluster",
    "size": "duplicate_count",
    "similarity": "duplicate_similarity",
    "location": "_duplicate_location",
}
BINS = 50  # of the histogram of similarities between 0 and 1


class NearDedupStep(NearDedupOptions):
    """Remove near duplicates: MinHash with banded locality-sensitive hashing, then verified (FineWeb: 14 x 8).

    Two documents whose sets of shingles have the Jaccard similarity s meet in at least one band with probability
    1 - (1 - s^rows)^bands. With 14 x 8 that is 0.09 % at s = 0.3, 5.3 % at 0.5, 56 % at 0.7, 92 % at 0.8, 99.96 % at
    0.9; Olmo 3 has 26 x 11 for the web. Documents that meet are compared by their true Jaccard similarity, and those
    that reach `min_jaccard` are joined to clusters. Joining is transitive: two members of a cluster may be less alike
    than any pair that built it.
    """

    rate = 42

    def annotate(self, shards: Sequence[Shard], work: Work) -> list[Path]:
        count = partitions_for(sum(shard.rows for shard in shards) * self.bands * BAND.itemsize)
        config = self.task_options()

        keys = work.run("near_keys", write_band_keys, shards, config | {"partitions": count})
        buckets = work.run("near_buckets", link_buckets, partitions(keys, count, shards))
        [everything] = partitions(buckets, 1, shards)
        [found] = work.run("near_components", find_components, [everything])

        candidates = shard_partitions([found], shards)
        batches = found.report["batches"]
        sets = work.run("near_sets", write_sets, candidates, config | {"batches": batches})
        verifying = partitions(sets, batches, shards, [task.file(SETS) for task in sets])
        verified = work.run("near_verified", verify_batch, verifying, config)
        members = shard_partitions(verified, shards)
        return [done.file(COLUMNS) for done in work.run("near_columns", write_member_columns, members, NAMES)]

    def decide(self, columns: pyarrow.Table) -> list[Rule]:
        leaders = columns.column("_duplicate_location").combine_chunks().fill_null(-1).to_numpy()
        if self.min_jaccard is None:
            values, limit = numbers(columns, "duplicate_count"), "alike by their signatures"
        else:
            values, limit = numbers(columns, "duplicate_similarity"), "Jaccard similarity"
        return [Rule("near duplicate of another document", leaders >= 0, values, limit, partners=leaders)]

    def report(self, tables: Iterable[pyarrow.Table]) -> Report:
        """The S-curve's numbers, and how alike the removed are to what stayed: counts in `BINS` equal parts of 0 to 1."""
        counts = np.zeros(BINS, np.int64)
        for table in tables:
            found = numbers(table, "duplicate_similarity")
            counts += np.histogram(found[~np.isnan(found)], BINS, (0.0, 1.0))[0]
        content = {"bands": self.bands, "rows": self.rows, "shingles": self.shingles, "size": self.size}
        return Report(
            content | {"min_jaccard": self.min_jaccard, "knee": self.knee(), "similarities": counts.tolist()}, []
        )
