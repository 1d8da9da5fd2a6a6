"""The tasks of the step `semantic_dedup`: embeddings, k-means, and the comparison inside each cluster.

    embedding = mean over tokens of the model's last layer (padding left out), divided by its length

which is what sentence-transformers computes for all-MiniLM-L6-v2 and similar models, or a column of the user's own. k-means runs
on the sphere: a vector belongs to the centroid with the largest cosine; a centroid becomes the mean of its vectors, at
length one, and an empty one stays where it is. steps/semantic_dedup.py says in which order the tasks run.

Invariants: every embedding has length one, or is all zero where there is nothing to embed (and is then like nothing else);
the same vectors in the same order and the same seed give the same centroids.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow
from numpy.typing import NDArray

from ingot.data import keep
from ingot.data.engine.exchange import RECORDS, Partition, ShardPartition, rows_of, write_partitioned
from ingot.data.engine.shard import COLUMNS, Shard, write_columns
from ingot.data.native import Offsets
from ingot.data.outside import read_step
from ingot.data.steps.semantic_dedup.options import SemanticDedupOptions
from ingot.workspace.errors import DataError
from ingot.workspace.packages import pip_install

Vectors = NDArray[np.float32]

BATCH_TEXTS = 64
CHARACTERS_A_TOKEN = 16  # more characters than this times max_tokens are not even given to the tokenizer


def embed(documents: pyarrow.Table, config: SemanticDedupOptions) -> Vectors:
    """An embedding for every document."""
    if config.embedding_column is not None:
        return of_column(documents, config.embedding_column)
    assert config.model is not None
    return of_model(documents.column("text").to_pylist(), config.model, config.max_tokens)


def unit(vectors: Vectors) -> Vectors:
    """The vectors at length one; zero stays zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)


def of_column(documents: pyarrow.Table, name: str) -> Vectors:
    """The user's embeddings; a missing one is zero."""
    rows = documents.column(name).to_pylist()
    widths = {len(row) for row in rows if row is not None}
    if len(widths) > 1:
        raise DataError(
            f"embeddings of different lengths: {', '.join(map(str, sorted(widths)))}",
            place=f"semantic_dedup: embedding_column: {name}",
            fix="give every document an embedding of the same model",
        )
    width = widths.pop() if widths else 1
    return unit(np.array([row if row is not None else [0.0] * width for row in rows], np.float32).reshape(-1, width))


def of_model(texts: list[str | None], folder: Path, max_tokens: int) -> Vectors:
    """The embeddings of a model folder, in batches of similar length."""
    if not (folder / "config.json").is_file():
        raise DataError(
            "this is not the folder of a model: it has no config.json",
            place=f"semantic_dedup: model: {folder}",
            fix="name a folder with config.json, model.safetensors and tokenizer.json",
        )
    try:
        import torch
        from transformers import AutoModel, AutoTokenizer
    except ModuleNotFoundError as error:
        raise DataError(f"embedding texts needs the package {error.name}", fix=pip_install(str(error.name))) from None

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModel.from_pretrained(folder, local_files_only=True).eval()
    beginnings = [(text or "")[: max_tokens * CHARACTERS_A_TOKEN] for text in texts]
    found = np.zeros((len(texts), int(model.config.hidden_size)), np.float32)
    order = sorted((row for row, text in enumerate(beginnings) if text.strip()), key=lambda row: len(beginnings[row]))
    with torch.inference_mode():
        for first in range(0, len(order), BATCH_TEXTS):
            rows = order[first : first + BATCH_TEXTS]
            batch = tokenizer(
                [beginnings[row] for row in rows],
                truncation=True,
                max_length=max_tokens,
                padding=True,
                return_tensors="pt",
            )
            states = model(**batch).last_hidden_state
            mask = batch["attention_mask"][:, :, None].to(states.dtype)
            found[rows] = ((states * mask).sum(1) / mask.sum(1)).float().numpy()
    return unit(found)


ROUNDS = 20
CENTROID_ROWS = 4096  # vectors compared with all centroids at once


def nearest(vectors: Vectors, centroids: Vectors) -> NDArray[np.int64]:
    """The number of the nearest centroid of every vector."""
    found = np.empty(len(vectors), np.int64)
    for first in range(0, len(vectors), CENTROID_ROWS):
        block = slice(first, first + CENTROID_ROWS)
        found[block] = np.argmax(vectors[block] @ centroids.T, axis=1)
    return found


def centroids_of(vectors: Vectors, count: int, seed: int) -> Vectors:
    """`count` centroids (fewer if there are fewer vectors), after at most `ROUNDS` rounds."""
    chosen = np.sort(np.random.default_rng(seed).permutation(len(vectors))[:count])
    centroids = vectors[chosen].copy()
    before = np.full(len(vectors), -1, np.int64)
    for _ in range(ROUNDS):
        cluster = nearest(vectors, centroids)
        if (cluster == before).all():
            break
        before = cluster
        sums = np.zeros_like(centroids)
        np.add.at(sums, cluster, vectors)
        filled = np.bincount(cluster, minlength=len(centroids)) > 0
        centroids[filled] = unit(sums[filled])
    return centroids


SAMPLE_A_CENTROID = 50  # vectors that k-means sees for each centroid
BLOCK_ROWS = 1024
FOUND = np.dtype([("location", "<i8"), ("leader", "<i8"), ("similarity", "<f4")])


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
    config = cast(SemanticDedupOptions, read_step(options["config"]))
    documents = shard.read(config.reads())
    vectors = embed(documents, config)
    records = np.zeros(len(documents), record(vectors.shape[1]))
    keep.describe(records, documents, shard.locations(), config)
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
    config = cast(SemanticDedupOptions, read_step(options["config"]))
    records = part.read(record(options["width"]))
    order = keep.best_first(records)
    records = records[order[np.argsort(records["cluster"][order], kind="stable")]]
    found = np.zeros(len(records), FOUND)
    found["location"], found["leader"] = records["location"], -1
    boundaries = np.flatnonzero(np.diff(records["cluster"])) + 1
    for rows in np.split(np.arange(len(records)), boundaries):
        if len(rows) > 1:
            reason, similarity = remove_later(np.ascontiguousarray(records["vector"][rows]), config.min_cosine)
            gone = reason >= 0
            found["leader"][rows[gone]] = records["location"][rows[reason[gone]]]
            found["similarity"][rows] = similarity
    found = found[found["leader"] >= 0]
    part.send_back(folder, found)
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


def write_similarity(folder: Path, output: ShardPartition, options: None) -> dict[str, Any]:
    """The columns of a shard."""
    found = output.part.read(FOUND)
    rows, total = rows_of(found["location"], output.shard), len(output.shard.rows_alive())
    leader, similarity = np.full(total, -1, np.int64), np.zeros(total, np.float32)
    leader[rows], similarity[rows] = found["leader"], found["similarity"]
    columns = {
        "semantic_similarity": pyarrow.array(similarity, mask=leader < 0),
        "_semantic_location": pyarrow.array(leader, mask=leader < 0),
    }
    write_columns(folder / COLUMNS, columns)
    return {"removed": len(found)}
