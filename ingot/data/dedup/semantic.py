"""The tasks of the step `semantic_dedup`; steps/semantic_dedup.py says what they are for and in which order they run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ingot.data.dedup import keep
from ingot.data.dedup.between import (
    RECORDS,
    Output,
    Partition,
    nullable,
    rows_of,
    write_by_shard,
    write_columns,
)
from ingot.data.dedup.embeddings import Vectors, embed
from ingot.data.dedup.kmeans import centroids_of, nearest
from ingot.data.engine.exchange import write_partitioned
from ingot.data.engine.shard import Shard
from ingot.data.steps.semantic_dedup import SemanticDedupStep
from ingot.data.text.arrays import Offsets
from ingot.workspace.errors import DataError

if TYPE_CHECKING:
    pass

SAMPLE_A_CENTROID = 50  # vectors that k-means sees for each centroid
BLOCK_ROWS = 1024
FOUND = np.dtype([("place", "<i8"), ("kept", "<i8"), ("similarity", "<f4")])


@dataclass(frozen=True)
class Embedded:
    """Files with embeddings (of one shard, or of all for the centroids), and the centroids once they exist."""

    files: tuple[Path, ...]
    key: str
    centroids: Path | None = None


def record(width: int) -> np.dtype[np.void]:
    """What is known of a document: what the keep rule needs, its cluster and its embedding."""
    return np.dtype([*keep.FIELDS, ("cluster", "<i8"), ("vector", "<f4", (width,))])


def embed_shard(folder: Path, shard: Shard, options: dict[str, Any]) -> dict[str, Any]:
    """The embeddings of a shard."""
    config = SemanticDedupStep.model_validate(options["config"])
    documents = shard.read(config.reads())
    vectors = embed(documents, config)
    records = np.zeros(len(documents), record(vectors.shape[1]))
    keep.describe(records, documents, shard.places(), config)
    records["vector"] = vectors
    np.save(folder / "embedded.npy", records)
    return {"documents": len(records), "width": vectors.shape[1]}


def embedded_records(path: Path, width: int) -> NDArray[np.void]:
    """The documents of a shard that have an embedding."""
    records = np.load(path)
    records = records[np.any(records["vector"] != 0, axis=1)]
    if not len(records):
        return np.zeros(0, record(width))
    if records.dtype != record(width):
        raise DataError(
            "embeddings of different lengths", place="semantic_dedup", fix="embed all documents with the same model"
        )
    return np.asarray(records)


def find_centroids(folder: Path, everything: Embedded, options: dict[str, Any]) -> dict[str, Any]:
    """Centroids of a sample that does not depend on the shards: the documents with the smallest hashes of ids."""
    wanted = options["count"] * SAMPLE_A_CENTROID
    sample = np.zeros(0, record(options["width"]))
    for path in everything.files:
        sample = np.concatenate([sample, embedded_records(path, options["width"])])
        sample = sample[np.argsort(sample["name"].view(np.uint64), kind="stable")[:wanted]]
    centroids = centroids_of(np.ascontiguousarray(sample["vector"]), options["count"], options["seed"])
    np.save(folder / "centroids.npy", centroids)
    return {"centroids": len(centroids), "sample": len(sample)}


def assign(folder: Path, embedded: Embedded, options: dict[str, Any]) -> dict[str, Any]:
    """Documents of a shard to clusters; those without an embedding take no part."""
    assert embedded.centroids is not None
    centroids = np.load(embedded.centroids)
    records = embedded_records(embedded.files[0], options["width"])
    if len(records):
        records["cluster"] = nearest(np.ascontiguousarray(records["vector"]), centroids)
    partitions = records["cluster"] * options["partitions"] // max(1, len(centroids))
    write_partitioned(folder / RECORDS, records, partitions, options["partitions"])
    return {"documents": len(records)}


def compare(folder: Path, part: Partition, options: dict[str, Any]) -> dict[str, Any]:
    """Which document goes for which, cluster by cluster."""
    config = SemanticDedupStep.model_validate(options["config"])
    records = part.read(record(options["width"]))
    order = keep.best_first(records)
    records = records[order[np.argsort(records["cluster"][order], kind="stable")]]
    found = np.zeros(len(records), FOUND)
    found["place"], found["kept"] = records["place"], -1
    boundaries = np.flatnonzero(np.diff(records["cluster"])) + 1
    for rows in np.split(np.arange(len(records)), boundaries):
        if len(rows) > 1:
            reason, similarity = remove_later(np.ascontiguousarray(records["vector"][rows]), config.min_cosine)
            gone = reason >= 0
            found["kept"][rows[gone]] = records["place"][rows[reason[gone]]]
            found["similarity"][rows] = similarity
    found = found[found["kept"] >= 0]
    write_by_shard(folder / RECORDS, found, part.shards)
    return {"removed": len(found)}


def remove_later(vectors: Vectors, minimum: float) -> tuple[Offsets, Vectors]:
    """For each row the most similar earlier row that stays, if its cosine is at least `minimum` (else -1); the cosine."""
    reason = np.full(len(vectors), -1, np.int64)
    similarity = np.zeros(len(vectors), np.float32)
    staying = np.zeros(0, np.int64)
    for first in range(0, len(vectors), BLOCK_ROWS):
        block = np.arange(first, min(first + BLOCK_ROWS, len(vectors)))
        cosines = np.concatenate([vectors[block] @ vectors[staying].T, vectors[block] @ vectors[block].T], axis=1)
        columns = np.concatenate([staying, block])
        open_columns = np.zeros(len(columns), bool)
        open_columns[: len(staying)] = True
        for index, row in enumerate(block.tolist()):
            candidates = np.where(open_columns, cosines[index], -2)
            best = int(np.argmax(candidates)) if len(columns) else 0
            if candidates[best] >= minimum:
                reason[row], similarity[row] = columns[best], candidates[best]
            else:
                open_columns[len(staying) + index] = True
        staying = np.concatenate([staying, block[reason[block] < 0]])
    return reason, similarity


def write_similarity(folder: Path, output: Output, options: None) -> dict[str, Any]:
    """The columns of a shard."""
    found = output.part.read(FOUND)
    rows, total = rows_of(found["place"], output.shard), len(output.shard.rows_alive())
    kept, similarity = np.full(total, -1, np.int64), np.zeros(total, np.float32)
    kept[rows], similarity[rows] = found["kept"], found["similarity"]
    columns = {"semantic_similarity": nullable(similarity, kept < 0), "_semantic_place": nullable(kept, kept < 0)}
    write_columns(folder / "columns.parquet", columns)
    return {"removed": len(found)}
