"""The tasks of the step `upsample` (steps/upsample.py), which give each document its number of copies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow
from numpy.typing import NDArray

from ingot.data.engine.exchange import RECORDS, Partition, write_partitioned
from ingot.data.engine.shard import COLUMNS, Shard, write_columns
from ingot.data.native import hash_each
from ingot.data.outside import read_step
from ingot.data.step import numbers
from ingot.data.steps.upsample.curve import Curve, solve
from ingot.data.steps.upsample.options import UpsampleOptions
from ingot.data.text.texts import Texts
from ingot.workspace.config import content_hash
from ingot.workspace.errors import DataError

SCORE = np.dtype([("topic", np.int64), ("score", np.float64), ("tokens", np.float64)])
WHOLE = "all documents"  # the one topic where there is no column of topics


@dataclass(frozen=True)
class Documents:
    """What decides about the documents of a shard."""

    topics: list[str | None]
    ranks: NDArray[np.float64]  # bucket or score; nan: none
    tokens: NDArray[np.float64]

    @classmethod
    def read(cls, shard: Shard, config: UpsampleOptions) -> Documents:
        table = shard.read([name for name in dict.fromkeys(config.reads()) if name != "text" or not config.tokens])
        topics = table.column(config.topic).to_pylist() if config.topic else [WHOLE] * len(table)
        ranks = numbers(table, config.bucket or config.quality or "")
        if config.tokens:
            tokens = np.nan_to_num(numbers(table, config.tokens))
        else:
            tokens = np.diff(Texts.of(table.column("text")).offsets) / config.bytes_per_token
        if config.bucket:
            outside = np.flatnonzero(~np.isin(ranks, np.arange(config.buckets)) & ~np.isnan(ranks))
            if len(outside):
                row = int(outside[0])
                raise DataError(
                    f"`{config.bucket}` is {ranks[row]:g}, not one of 0 … {config.buckets - 1}",
                    place=f"step upsample, document {table.column('id')[row].as_py()}",
                    fix="set `buckets` to the number of buckets of the step that wrote the column",
                )
        return cls([topic if topic is None else str(topic) for topic in topics], ranks, tokens)

    def by_topic(self) -> dict[str, NDArray[np.int64]]:
        """The rows of each topic that have a rank; topics in alphabetical order."""
        ranked = ~np.isnan(self.ranks)
        rows: dict[str, list[int]] = {}
        for row, topic in enumerate(self.topics):
            if topic is not None and ranked[row]:
                rows.setdefault(topic, []).append(row)
        return {topic: np.array(rows[topic], np.int64) for topic in sorted(rows)}


def count(folder: Path, shard: Shard, config: UpsampleOptions) -> dict[str, Any]:
    """Tokens by topic and bucket."""
    documents = Documents.read(shard, config)
    return {
        "tokens": {
            topic: np.bincount(
                documents.ranks[rows].astype(np.int64), documents.tokens[rows], minlength=config.buckets
            ).tolist()
            for topic, rows in documents.by_topic().items()
        }
    }


def topic_number(topic: str) -> int:
    """A number for a topic that needs no list of all topics."""
    return int(content_hash(topic)[:15], 16)


def send_scores(folder: Path, shard: Shard, options: dict[str, Any]) -> dict[str, Any]:
    """The score and tokens of each document, to the partition that its topic belongs to."""
    documents = Documents.read(shard, cast(UpsampleOptions, read_step(options["config"])))
    by_topic = documents.by_topic()
    found = [np.zeros(0, SCORE)]
    for topic, rows in by_topic.items():
        found.append(np.zeros(len(rows), SCORE))
        found[-1]["topic"] = topic_number(topic)
        found[-1]["score"], found[-1]["tokens"] = documents.ranks[rows], documents.tokens[rows]
    records, count = np.concatenate(found), options["partitions"]
    write_partitioned(folder / RECORDS, records, records["topic"] % count, count)
    return {"topics": list(by_topic)}


def rank(folder: Path, part: Partition, buckets: int) -> dict[str, Any]:
    """By topic: the scores at which its buckets begin, all but the first, and the tokens in each bucket."""
    records = part.read(SCORE)
    topics = {}
    for number in np.unique(records["topic"]):
        mine = np.sort(records[records["topic"] == number], order=["score", "tokens"])
        sizes: NDArray[np.float64] = mine["tokens"]
        middles = np.cumsum(sizes) - sizes / 2
        wanted = np.arange(1, buckets) / buckets * sizes.sum()
        begins = mine["score"][np.minimum(np.searchsorted(middles, wanted), len(mine) - 1)]
        found = np.searchsorted(begins, mine["score"], side="right")  # equal scores share a bucket
        tokens = np.bincount(found, mine["tokens"], minlength=buckets)
        topics[str(number)] = {"begins": begins.tolist(), "tokens": tokens.tolist()}
    return {"topics": topics}


def copies_of(ids: Texts, rates: NDArray[np.float64], seed: int) -> NDArray[np.int32]:
    """The rates rounded up or down, by a hash of the id."""
    hashes = hash_each(ids.data, ids.offsets, np.uint64(seed))
    chance = (hashes >> np.uint64(11)).astype(np.float64) / 2.0**53
    whole = np.floor(rates)
    return (whole + (chance < rates - whole)).astype(np.int32)


def give_copies(folder: Path, shard: Shard, options: dict[str, Any]) -> dict[str, Any]:
    """The columns of a shard."""
    config = cast(UpsampleOptions, read_step(options["config"]))
    documents = Documents.read(shard, config)
    rates = np.ones(len(documents.topics))
    for topic, rows in documents.by_topic().items():
        if topic not in options["rates"]:  # no tokens at all
            continue
        buckets = documents.ranks[rows].astype(np.int64)
        if config.quality:
            buckets = np.searchsorted(options["begins"][topic], documents.ranks[rows], side="right")
        rates[rows] = np.asarray(options["rates"][topic])[buckets]
    ids = Texts.of(shard.read(["id"]).column("id").cast(pyarrow.large_string()))
    copies = copies_of(ids, rates, config.seed)
    columns = {config.copies: pyarrow.array(copies), "upsample_rate": pyarrow.array(rates, pyarrow.float32())}
    write_columns(folder / COLUMNS, columns)
    return {"copies": int(copies.sum()), "tokens": float((copies * documents.tokens).sum())}


def edges_of(tokens: NDArray[np.float64]) -> NDArray[np.float64]:
    """The edges of buckets on the axis of cumulative token share."""
    edges = np.concatenate([[0.0], np.cumsum(tokens)])
    return np.asarray(edges / edges[-1])


def solve_topics(tokens: dict[str, NDArray[np.float64]], config: UpsampleOptions) -> dict[str, Curve]:
    """The curve of each topic that has tokens."""
    missing = sorted(set(config.targets) - {topic for topic, found in tokens.items() if found.sum() > 0})
    if missing:
        raise DataError(
            f"no document has the topic {', '.join(missing)}",
            place="step upsample, targets",
            fix=f"topics found: {', '.join(sorted(tokens)) or 'none'}",
        )
    curves = {}
    for topic, found in sorted(tokens.items()):
        available = float(found.sum())
        if available <= 0:
            continue
        ratio = config.targets[topic] / available if topic in config.targets else config.ratio
        try:
            curves[topic] = solve(ratio, edges_of(found), config.discard, config.max_rate)
        except DataError as error:
            raise DataError(
                error.problem, place=f"step upsample, topic {topic} ({available:.4g} tokens)", fix=error.fix
            ) from error
    return curves
