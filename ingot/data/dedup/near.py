"""Near duplicates by MinHash: the phases in order, and the rule.

    band keys -> buckets -> components      bands.py: who may be alike
    shingle sets -> clusters                verify.py: who is, and who stays
    columns                                 clusters.py: a file for each shard

Invariant: the clusters do not depend on how the documents are cut into shards; no phase joins the whole corpus in
memory except the union-find, which holds two numbers for each document that met another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ingot.data.dedup.bands import BAND, find_components, link_buckets, write_band_keys
from ingot.data.dedup.between import outputs_of, parts_of, task_options
from ingot.data.dedup.clusters import write_member_columns
from ingot.data.dedup.config import NearDedupStep
from ingot.data.dedup.verify import SETS, Batch, verify_batch, write_sets
from ingot.data.engine.exchange import partitions_for
from ingot.data.engine.shard import Shard
from ingot.data.engine.work import Work
from ingot.data.step import AcrossDocuments, Report, Rule, numbers

if TYPE_CHECKING:
    import pyarrow

COLUMNS = {
    "cluster": "duplicate_cluster",
    "size": "duplicate_count",
    "similarity": "duplicate_similarity",
    "place": "_duplicate_place",
}
BINS = 50  # of the histogram of similarities between 0 and 1


class NearDuplicates(AcrossDocuments[NearDedupStep]):
    """`near_dedup`."""

    def say(self) -> list[str]:
        step = self.config
        verified = "not verified" if step.min_jaccard is None else f"verified at Jaccard {step.min_jaccard:g}"
        curve = ", ".join(f"{s:.1f}: {100 * step.probability(s):.2f} %" for s in (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9))
        return [
            f"{step.bands} bands x {step.rows} rows, shingles of {step.size} {step.shingles}, knee at Jaccard "
            f"{step.knee():.2f}, {verified}",
            f"share of pairs that meet, by similarity: {curve}",
        ]

    def annotate(self, shards: Sequence[Shard], work: Work) -> list[Path]:
        count = partitions_for(sum(shard.rows for shard in shards) * self.config.bands * BAND.itemsize)
        config = task_options(self)

        keys = work.run("near_keys", write_band_keys, shards, config | {"partitions": count})
        buckets = work.run("near_buckets", link_buckets, parts_of(keys, count, shards))
        [everything] = parts_of(buckets, 1, shards)
        [found] = work.run("near_components", find_components, [everything])

        candidates = outputs_of([found], shards)
        batches = found.report["batches"]
        sets = work.run("near_sets", write_sets, candidates, config | {"batches": batches})
        files = tuple(task.file(SETS) for task in sets)
        verified = work.run(
            "near_verified", verify_batch, [Batch(part, files) for part in parts_of(sets, batches, shards)], config
        )
        members = outputs_of(verified, shards)
        return [
            done.file("columns.parquet") for done in work.run("near_columns", write_member_columns, members, COLUMNS)
        ]

    def rules(self, columns: pyarrow.Table) -> list[Rule]:
        kept = columns.column("_duplicate_place").combine_chunks().fill_null(-1).to_numpy()
        if self.config.min_jaccard is None:
            values, limit = numbers(columns, "duplicate_count"), "alike by their signatures"
        else:
            values, limit = numbers(columns, "duplicate_similarity"), "Jaccard similarity"
        return [Rule("near duplicate of another document", kept >= 0, values, limit, partners=kept)]

    def report(self, tables: Iterable[pyarrow.Table]) -> Report:
        """The S-curve's numbers, and how alike the removed are to what stayed: counts in `BINS` equal parts of 0 to 1."""
        step = self.config
        counts = np.zeros(BINS, np.int64)
        for table in tables:
            found = numbers(table, "duplicate_similarity")
            counts += np.histogram(found[~np.isnan(found)], BINS, (0.0, 1.0))[0]
        content = {"bands": step.bands, "rows": step.rows, "shingles": step.shingles, "size": step.size}
        return Report(
            content | {"min_jaccard": step.min_jaccard, "knee": step.knee(), "similarities": counts.tolist()}, []
        )
