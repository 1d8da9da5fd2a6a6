"""The step `semantic_dedup` removes documents that say the same: SemDeDup (Abbas et al. 2023, arXiv 2303.09540).

    embed (a task a shard)       an embedding for each document
    centroids (one task)         k-means on a sample, the documents with the smallest id hashes
    assign (a task a shard)      embeddings into the exchange, by cluster
    compare (a task a partition) inside each cluster: in the order of the keep rule, a document goes if its cosine with
                                 one that stays is at least `min_cosine`
    columns (a task a shard)

SemDeDup compares with every earlier document, also with removed ones, so that chains of small differences vanish whole;
here the document named as the reason always stays. Copies in different clusters are not found: the price of not
comparing all pairs.

Invariant: no two documents that stay in a cluster have a cosine of `min_cosine` or more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import pyarrow

from ingot.data.engine.exchange import partitions, partitions_for, shard_partitions
from ingot.data.engine.shard import COLUMNS, Shard
from ingot.data.engine.work import Work
from ingot.data.keep import KeepConfig as KeepConfig
from ingot.data.step import Rule, numbers
from ingot.data.steps.semantic_dedup.options import SemanticDedupOptions
from ingot.data.steps.semantic_dedup.tasks import (
    Embedded,
    assign,
    compare,
    embed_shard,
    find_centroids,
    record,
    write_similarity,
)
from ingot.workspace.config import content_hash
from ingot.workspace.files import fingerprint as fingerprint


class SemanticDedupStep(SemanticDedupOptions):
    """Remove documents that say the same in other words: SemDeDup (Abbas et al. 2023, arXiv 2303.09540).

    Embeddings are clustered by k-means; inside a cluster a document goes if the cosine of its embedding with a document
    that stays is at least `min_cosine`. Embeddings come from a model folder or from a column of your own.
    """

    def annotate(self, shards: Sequence[Shard], work: Work) -> list[Path]:
        config = self.task_options()
        embedded = work.run("semantic_embed", embed_shard, shards, config)
        width = max((task.report["width"] for task in embedded), default=1)
        total = sum(task.report["documents"] for task in embedded)
        count = self.clusters or max(1, math.isqrt(total))
        files = tuple(task.file("embedded.npy") for task in embedded)
        everything = Embedded(files, content_hash([task.key for task in embedded], 24))
        [found] = work.run(
            "semantic_centroids", find_centroids, [everything], {"count": count, "width": width, "seed": self.seed}
        )
        count = partitions_for(total * record(width).itemsize)
        items = [
            Embedded((file,), content_hash([task.key, found.key], 24), found.file("centroids.npy"))
            for file, task in zip(files, embedded, strict=True)
        ]
        assigned = work.run("semantic_assign", assign, items, {"partitions": count, "width": width})
        compared = work.run("semantic_compare", compare, partitions(assigned, count, shards), config | {"width": width})
        outputs = shard_partitions(compared, shards)
        return [done.file(COLUMNS) for done in work.run("semantic_columns", write_similarity, outputs)]

    def decide(self, columns: pyarrow.Table) -> list[Rule]:
        leaders = columns.column("_semantic_location").combine_chunks().fill_null(-1).to_numpy()
        values = numbers(columns, "semantic_similarity")
        return [Rule("says the same as another document", leaders >= 0, values, "cosine", partners=leaders)]
