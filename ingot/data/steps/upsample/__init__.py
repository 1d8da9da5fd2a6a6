"""The step `upsample` gives each document a number of copies, from one curve a topic.

    count    a shard: tokens by topic and bucket. With a raw score: (topic, score, tokens) of each document, by topic
    rank     a topic (raw scores only): the scores that divide its tokens into equal buckets
    copies   a shard: the rate of each document's bucket, rounded up or down by a hash of its id

Between the phases only tokens by topic and bucket are held in memory, and one curve a topic is solved (curve.py).

    copies = floor(rate) + [hash(id) < rate - floor(rate)]

so the expected number of copies is the rate, the same document always gets the same number, and a larger rate never
gives it fewer. A document without topic or rank is left alone: one copy.

Invariant: copies do not depend on the order of the documents or on how they are divided into shards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field, PositiveFloat, model_validator

from ingot.data.step import AcrossDocuments, Rule, at_least, numbers

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    import pyarrow
    from numpy.typing import NDArray

    from ingot.data.engine.shard import Shard
    from ingot.data.engine.work import Work


class UpsampleStep(AcrossDocuments):
    """Decide how often each document is shown: never below the discard point, more often the better it is.

    In each topic a truncated power-exponential curve over the documents from worst to best is solved for the topic's
    token target (Olmo 3, arXiv 2512.13961, A.2.4; see curve.py). A document gets the whole part of its rate as copies
    and one more with the probability of the rest, decided by a hash of its id. Documents with 0 copies are removed;
    the tokenize stage writes a document `copies` times.
    """

    targets: dict[str, PositiveFloat] = Field(
        default={}, description="tokens wanted by topic; a topic that is not named gets `ratio` times what it has"
    )
    ratio: float = Field(
        default=1.0, gt=0, description="tokens wanted for each token available, in topics that `targets` does not name"
    )
    topic: str | None = Field(default="topic", description="column with the topic; null: all documents are one topic")
    bucket: str | None = Field(
        default="quality_bucket",
        description="column with the rank inside the topic, 0 is worst, as the step `ventiles` writes it; null: `quality` "
        "is ranked here",
    )
    quality: str | None = Field(
        default=None, description="column with a score, higher is better, that is ranked here; goes with `bucket: null`"
    )
    buckets: int = Field(default=20, ge=2, le=1000, description="number of buckets, worst to best; Olmo 3: 20")
    tokens: str | None = Field(
        default=None, description="column with the number of tokens; null: bytes of the text / `bytes_per_token`"
    )
    bytes_per_token: float = Field(default=4.0, gt=0, description="estimate for documents that are not tokenised yet")
    discard: float = Field(
        default=0.4,
        ge=0,
        lt=1,
        description="share of a topic's tokens, from the worst, that is not shown at all; moved down to the edge of a "
        "bucket. Olmo 3: 0.4",
    )
    max_rate: float = Field(
        default=7.0, gt=0, description="largest average number of copies in the best bucket; Olmo 3: 7"
    )
    copies: str = Field(default="copies", description="column to write: how often the document is shown")
    seed: int = Field(default=0, ge=0, description="other seeds give the copy of a fractional rate to other documents")

    @model_validator(mode="after")
    def _one_rank(self) -> UpsampleStep:
        if (self.bucket is None) == (self.quality is None):
            raise ValueError(
                "give `bucket` (a column of ranks) or `quality` (a column of scores) and set the other to null"
            )
        return self

    @model_validator(mode="after")
    def _one_size(self) -> UpsampleStep:
        if self.tokens is not None:
            self.refuse("bytes_per_token", because=f"the column {self.tokens} has the tokens")
        return self

    def reads(self) -> tuple[str, ...]:
        named = (self.topic, self.bucket, self.quality, self.tokens)
        return (*super().reads(), "id", *(name for name in named if name))

    def writes(self) -> tuple[str, ...]:
        return (self.copies, "upsample_rate")

    def annotate(self, shards: Sequence[Shard], work: Work) -> list[Path]:
        import numpy as np

        from ingot.data.engine.shard import COLUMNS
        from ingot.data.upsample.upsample import count, edges_of, give_copies, solve_topics

        begins: dict[str, list[float]] = {}
        if self.quality:
            tokens, begins = self._ranked(shards, work)
        else:
            tokens = {}
            for done in work.run("upsample-count", count, shards, self, version=self.version):
                for topic, found in done.report["tokens"].items():
                    tokens[topic] = tokens.get(topic, np.zeros(self.buckets)) + np.asarray(found)
        curves = solve_topics(tokens, self)
        rates = {topic: curve.rates(edges_of(tokens[topic])).tolist() for topic, curve in curves.items()}
        options = {"config": self.model_dump(mode="json"), "rates": rates, "begins": begins}
        given = work.run("upsample-copies", give_copies, shards, options, version=self.version)
        return [done.file(COLUMNS) for done in given]

    def _ranked(
        self, shards: Sequence[Shard], work: Work
    ) -> tuple[dict[str, NDArray[np.float64]], dict[str, list[float]]]:
        """Tokens by topic and bucket, and where the buckets begin, from raw scores."""
        import numpy as np

        from ingot.data.engine.exchange import partitions, partitions_for
        from ingot.data.upsample.upsample import SCORE, rank, send_scores, topic_number

        number = partitions_for(sum(shard.rows for shard in shards) * SCORE.itemsize)
        options = {"config": self.model_dump(mode="json"), "partitions": number}
        sent = work.run("upsample-scores", send_scores, shards, options, version=self.version)
        found: dict[str, Any] = {}
        for done in work.run(
            "upsample-rank", rank, partitions(sent, number, shards), self.buckets, version=self.version
        ):
            found |= done.report["topics"]
        topics = sorted({topic for done in sent for topic in done.report["topics"]})
        ranked = {topic: found[str(topic_number(topic))] for topic in topics}
        tokens = {topic: np.asarray(entry["tokens"]) for topic, entry in ranked.items()}
        return tokens, {topic: entry["begins"] for topic, entry in ranked.items()}

    def decide(self, columns: pyarrow.Table) -> list[Rule]:
        return [at_least(self.copies, numbers(columns, self.copies), 1)]
