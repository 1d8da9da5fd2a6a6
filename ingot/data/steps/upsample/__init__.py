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

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from numpy.typing import NDArray

from ingot.data.engine.exchange import partitions, partitions_for
from ingot.data.engine.shard import COLUMNS, Shard
from ingot.data.engine.work import Work
from ingot.data.step import AcrossDocuments as AcrossDocuments
from ingot.data.step import Rule, at_least, numbers
from ingot.data.steps.upsample.options import UpsampleOptions
from ingot.data.steps.upsample.tasks import (
    SCORE,
    count,
    edges_of,
    give_copies,
    rank,
    send_scores,
    solve_topics,
    topic_number,
)


class UpsampleStep(UpsampleOptions):
    """Decide how often each document is shown: never below the discard point, more often the better it is.

    In each topic a truncated power-exponential curve over the documents from worst to best is solved for the topic's
    token target (Olmo 3, arXiv 2512.13961, A.2.4; see curve.py). A document gets the whole part of its rate as copies
    and one more with the probability of the rest, decided by a hash of its id. Documents with 0 copies are removed;
    the tokenize stage writes a document `copies` times.
    """

    def annotate(self, shards: Sequence[Shard], work: Work) -> list[Path]:
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
