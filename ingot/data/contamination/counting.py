"""Counts how common the n-grams of the evals are in the documents: a first pass over all of them.

    df(x)      documents that hold the n-gram x at least once
    weight(x)  ln((E + D) / (df_evals(x) + df(x)))       E evals, D documents

A match is scored by a ratio of weights: what an eval shares with a document over all that it has. A verbatim copy
scores 1 whatever the weights are. What is often quoted (a licence, a verse, "choose the correct answer") is in many
documents, weighs little on both sides of the ratio, and the words that only this eval has decide.

Invariant: counts are sums over shards, so they do not depend on how the documents were split or on the workers.
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ingot.data.engine.shard import Shard
from ingot.data.engine.store import FinishedTask
from ingot.data.text.texts import Texts
from ingot.workspace.config import content_hash

COUNTS, MATCHES = "counts.npz", "matches.parquet"


@dataclass(frozen=True)
class ShardItem:
    """A shard to count in, or to match with the counts of all shards."""

    shard: Shard
    key: str
    meaning: str  # of the step and the eval files
    counts: tuple[Path, ...] = ()

    @property
    def bytes(self) -> int:
        return self.shard.bytes

    def texts(self) -> Texts:
        """The texts of the shard."""
        return Texts.of(self.shard.read(["text"]).column("text"))


@dataclass(frozen=True)
class NgramCounts:
    """How many documents hold each n-gram of the evals, and how many documents there are."""

    documents: int
    frequencies: NDArray[np.int64]


def shard_items(shards: Sequence[Shard], meaning: str, counted: Sequence[FinishedTask] = ()) -> list[ShardItem]:
    """An item for each shard, keyed by its content, the eval files (`meaning`) and the counts."""
    counts = tuple(done.file(COUNTS) for done in counted)
    base = [meaning, [done.key for done in counted]]
    return [ShardItem(shard, content_hash([*base, shard.key], 24), meaning, counts) for shard in shards]


def save_counts(folder: Path, documents: NDArray[np.int64], ids: NDArray[np.int64], total: int) -> None:
    """Store how many different documents each n-gram was hit in; hit i is n-gram ids[i] in documents[i]."""
    seen = np.unique(np.stack([ids, documents]), axis=1)[0] if len(ids) else ids
    found, frequencies = np.unique(seen, return_counts=True)
    np.savez(folder / COUNTS, ids=found, frequencies=frequencies, documents=np.int64(total))


def load_counts(paths: Sequence[Path], ngrams: Sized) -> NgramCounts:
    """The counts of all shards together."""
    frequencies = np.zeros(len(ngrams), np.int64)
    documents = 0
    for path in paths:
        with np.load(path) as part:
            frequencies[part["ids"]] += part["frequencies"]
            documents += int(part["documents"])
    return NgramCounts(documents, frequencies)


def corpus_weights(evals: int, eval_frequencies: NDArray[np.int64], counts: NgramCounts) -> NDArray[np.float64]:
    """The weight of each n-gram among evals and documents together."""
    return np.log((evals + counts.documents) / (eval_frequencies + counts.frequencies))
