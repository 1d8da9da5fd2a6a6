"""The step `ventiles` turns scores into ranks inside topics.

The documents of a topic, ordered by score, are cut into `buckets` shares of equal weight (tokens):

    bucket = floor(buckets × (weight of the documents before it) / (weight of the topic))

Equal scores are ordered by location, so that every document has one bucket. A classifier's raw score means another thing
in every topic (a recipe is never an encyclopaedia); the rank does not. Olmo 3 upsamples by topic and ventile.

Exact, through files, in bounded memory:
    measure   by shard: weight and number of documents by (topic, 16 high bits of the score)
    spread    by shard: records to partitions, which are runs of (topic, high bits) with at most so many records
    rank      by partition: sort, add up weights from the partition's start, cut; records back to their shards
    gather    by shard: the column in the order of the documents

Invariant: a bucket depends on the documents only, not on shards, partitions or workers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from ingot.data.step import AcrossDocuments

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ingot.data.engine.shard import Shard
    from ingot.data.engine.work import Work


class VentilesStep(AcrossDocuments):
    """Turn scores into equal shares of the tokens inside each topic (Olmo 3: 24 topics x 20 buckets). See ventiles.py."""

    score: str = Field(default="quality", description="column of the score; a higher one is better")
    topic: str | None = Field(default=None, description="column of the topic (null: all documents are one topic)")
    tokens: str | None = Field(
        default=None, description="column with the tokens of a document (null: its bytes, which stand in for them)"
    )
    buckets: int = Field(default=20, ge=2, le=1000, description="equal shares: 20 are ventiles")
    column: str = Field(default="quality_bucket", min_length=1, description="column for the bucket: 0 is the worst")

    def reads(self) -> tuple[str, ...]:
        return (*super().reads(), self.score, *(name for name in (self.topic, self.tokens) if name))

    def writes(self) -> tuple[str, ...]:
        return (self.column,)

    def annotate(self, shards: Sequence[Shard], work: Work) -> list[Path]:
        from ingot.data.classify.ventiles import CELLS, add_up, gather, measure, rank, spread
        from ingot.data.engine.exchange import ShardPartition, partitions, shard_partitions
        from ingot.data.engine.shard import COLUMNS

        measured = work.run("ventiles-measure", measure, shards, self, version=self.version)
        [everything] = partitions(measured, 1, shards)
        [added] = work.run("ventiles-add", add_up, [everything], self, version=self.version)
        cells = [added.file(CELLS)]
        [everything] = partitions(measured, 1, shards, cells)
        items = [ShardPartition(shard, everything) for shard in shards]
        spreads = work.run("ventiles-spread", spread, items, self, version=self.version)
        ranking = partitions(spreads, added.report["partitions"], shards, cells)
        ranked = work.run("ventiles-rank", rank, ranking, self.buckets, version=self.version)
        gathering = shard_partitions(ranked, shards)
        done = work.run("ventiles-gather", gather, gathering, self.column, version=self.version)
        return [each.file(COLUMNS) for each in done]
