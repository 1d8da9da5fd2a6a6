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
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, model_validator

from ingot.data.keep import KeepConfig
from ingot.data.step import Rule, numbers
from ingot.workspace.config import content_hash
from ingot.workspace.files import fingerprint

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow

    from ingot.data.engine.shard import Shard
    from ingot.data.engine.work import Work


class SemanticDedupStep(KeepConfig):
    """Remove documents that say the same in other words: SemDeDup (Abbas et al. 2023, arXiv 2303.09540).

    Embeddings are clustered by k-means; inside a cluster a document goes if the cosine of its embedding with a document
    that stays is at least `min_cosine`. Embeddings come from a model folder or from a column of your own.
    """

    model: Path | None = Field(
        default=None,
        description="folder of a sentence-embedding model as transformers lays it out (config.json, model.safetensors, "
        "tokenizer.json), such as all-MiniLM-L6-v2; tokens are averaged",
    )
    embedding_column: str | None = Field(
        default=None, description="column with a list of numbers for each document, instead of `model`"
    )
    max_tokens: int = Field(default=256, ge=1, description="tokens of a document that the model sees")
    min_cosine: float = Field(
        default=0.95,
        gt=0,
        le=1,
        description="cosine similarity that makes a copy; 0.95 removes little (SemDeDup: eps 0.05)",
    )
    clusters: int | None = Field(
        default=None,
        ge=1,
        description="number of k-means clusters; null: the square root of the number of documents. Only documents of the "
        "same cluster are compared",
    )
    seed: int = Field(default=0, description="seed of the first centroids")

    @model_validator(mode="after")
    def _one_origin(self) -> SemanticDedupStep:
        if (self.model is None) == (self.embedding_column is None):
            raise ValueError(
                "where the embeddings come from: give `model` (a folder) or `embedding_column`, one of them"
            )
        return self

    @model_validator(mode="after")
    def _model_reads(self) -> SemanticDedupStep:
        if self.model is None:
            self.refuse("max_tokens", because="the embeddings are those of a column, no model reads texts")
        return self

    def reads(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*super().reads(), *([self.embedding_column] if self.embedding_column else []))))

    def writes(self) -> tuple[str, ...]:
        return ("semantic_similarity", "_semantic_location")

    def outside(self) -> dict[str, str]:
        return {str(path): fingerprint(path) for path in sorted(self.model.glob("*.*"))} if self.model else {}

    def annotate(self, shards: Sequence[Shard], work: Work) -> list[Path]:
        from ingot.data.dedup.semantic import (
            Embedded,
            assign,
            compare,
            embed_shard,
            find_centroids,
            record,
            write_similarity,
        )
        from ingot.data.engine.exchange import partitions, partitions_for, shard_partitions
        from ingot.data.engine.shard import COLUMNS

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
