"""Reads and writes classifiers: folders of our own, and the dense (`.bin`) and quantised (`.ftz`) files of fastText.

Our folder has `classifier.json` (options, labels, report) and `weights.safetensors`:

    rows, outputs        float32, as in linear.py
    words, word_ends     the vocabulary: UTF-8 bytes end to end, and where each word ends
    kept, kept_rows      int32: the buckets that have a row, and which

fastText's file:

    magic 793712314, version 12 | options | dictionary: words, labels, counts, kept buckets | input matrix | output matrix

A quantised matrix (Joulin et al. 2016, "FastText.zip") holds one byte for each group of `width` columns of a row: the
number of a centroid; with `qnorm` the row's length is such a number too. It is expanded to float32 on reading: the
176 languages of lid.176.ftz (0.9 MB) become 3 MB.

Invariant: nothing of a file is executed or trusted: every length is checked against what is left of the file.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save

from ingot.data.steps.classify.features import LABEL_PREFIX
from ingot.data.steps.classify.linear import LinearModel, Loss
from ingot.data.text.texts import Texts
from ingot.workspace.errors import ArtifactError
from ingot.workspace.files import atomic_folder, read_json, write_json

MAGIC = 793712314
VERSIONS = (11, 12)
SUPERVISED = 3
LOSSES: dict[int, Loss] = {1: "tree", 3: "softmax", 4: "sigmoid"}
CENTROIDS = 256
WORD, LABEL = 0, 1


@dataclass
class ByteReader:
    """Reads the bytes of a file in order; `at` is the next one."""

    data: bytes
    path: Path
    at: int = 0

    def take(self, size: int) -> int:
        """Move on by `size` bytes; returns where they begin."""
        if size < 0 or self.at + size > len(self.data):
            raise ArtifactError("the file is cut short or damaged", place=str(self.path), fix="get the model again")
        self.at += size
        return self.at - size

    def values(self, pattern: str) -> tuple[int, ...]:
        """Numbers by a pattern of `struct`, little endian, without padding."""
        return struct.unpack_from("<" + pattern, self.data, self.take(struct.calcsize("<" + pattern)))

    def array(self, dtype: str, count: int) -> NDArray[np.float32]:
        """`count` numbers of one type."""
        size = np.dtype(dtype).itemsize
        return np.frombuffer(self.data, dtype, count, self.take(size * count))

    def word(self) -> bytes:
        """Bytes up to a NUL."""
        end = self.data.find(b"\0", self.at)
        start = self.take((end if end >= 0 else len(self.data)) - self.at + 1)
        return self.data[start:end]


def read_fasttext(path: Path) -> LinearModel:
    """A supervised fastText model."""
    reader = ByteReader(path.read_bytes(), path)
    if reader.values("i")[0] != MAGIC:
        raise ArtifactError("not a fastText model", place=str(path), fix="give a .bin or .ftz file of fastText")
    [version] = reader.values("i")
    names = ("dim", "ws", "epoch", "min_count", "neg", "word_ngrams", "loss", "model", "bucket", "minn", "maxn", "rate")
    options = dict(zip(names, reader.values("12i"), strict=True))
    reader.take(8)  # the sampling threshold, used in training only
    if version not in VERSIONS or options["model"] != SUPERVISED or options["loss"] not in LOSSES:
        raise ArtifactError(
            "not a supervised fastText model of a known version",
            place=str(path),
            fix="train with `fasttext supervised` and the loss softmax, hs or ova",
        )
    size, word_count, label_count = reader.values("3i")
    _, pruned = reader.values("2q")
    words: list[bytes] = []
    labels: list[bytes] = []
    label_counts: list[int] = []
    for _ in range(size):
        entry = reader.word()
        count, kind = reader.values("qb")
        if kind == WORD:
            words.append(entry)
        else:
            labels.append(entry)
            label_counts.append(count)
    if (len(words), len(labels)) != (word_count, label_count):
        raise ArtifactError("the dictionary is damaged", place=str(path), fix="get the model again")
    bucket_rows = None
    if pruned >= 0:
        pairs = reader.array("<i4", 2 * pruned).reshape(-1, 2)
        bucket_rows = np.full(options["bucket"], -1, np.int32)
        bucket_rows[pairs[:, 0].astype(np.int64)] = pairs[:, 1]
    [quantised] = reader.values("?")
    rows = quantised_matrix(reader) if quantised else dense_matrix(reader)
    [quantised_output] = reader.values("?")
    outputs = quantised_matrix(reader) if quantised and quantised_output else dense_matrix(reader)
    loss = LOSSES[options["loss"]]
    return LinearModel(
        labels=tuple(label.removeprefix(LABEL_PREFIX).decode("utf-8", "replace") for label in labels),
        vocabulary=bytes_as_texts(words),
        rows=rows,
        outputs=outputs,
        word_ngrams=options["word_ngrams"],
        min_characters=options["minn"],
        max_characters=0 if version == 11 else options["maxn"],  # version 11 had none for classifiers
        buckets=options["bucket"],
        bucket_rows=bucket_rows,
        loss=loss,
        tree=huffman_tree(label_counts) if loss == "tree" else None,
    )


def bytes_as_texts(words: list[bytes]) -> Texts:
    """Words end to end."""
    offsets = np.zeros(len(words) + 1, np.int64)
    np.cumsum([len(word) for word in words], out=offsets[1:])
    return Texts(np.frombuffer(b"".join(words), np.uint8), offsets)


def dense_matrix(reader: ByteReader) -> NDArray[np.float32]:
    """Rows of float32."""
    rows, columns = reader.values("2q")
    return reader.array("<f4", rows * columns).reshape(rows, columns)


def quantised_matrix(reader: ByteReader) -> NDArray[np.float32]:
    """A product-quantised matrix, expanded."""
    [with_norms] = reader.values("?")
    rows, columns, code_bytes = reader.values("2qi")
    codes = reader.array("u1", code_bytes)
    matrix = expand(codes, rows, centroids(reader))
    if with_norms:
        norm_codes = reader.array("u1", rows)
        matrix *= expand(norm_codes, rows, centroids(reader))
    if matrix.shape != (rows, columns):
        raise ArtifactError("a quantised matrix is damaged", place=str(reader.path), fix="get the model again")
    return matrix


def centroids(reader: ByteReader) -> list[NDArray[np.float32]]:
    """By group of columns: 256 centroids. The last group may be narrower."""
    columns, groups, width, last = reader.values("4i")
    flat = reader.array("<f4", columns * CENTROIDS)
    if groups < 1 or width * (groups - 1) + last != columns:
        raise ArtifactError("a quantiser is damaged", place=str(reader.path), fix="get the model again")
    cut = (groups - 1) * CENTROIDS * width
    wide = [
        flat[group * CENTROIDS * width :][: CENTROIDS * width].reshape(CENTROIDS, width) for group in range(groups - 1)
    ]
    return [*wide, flat[cut:].reshape(CENTROIDS, last)]


def expand(codes: NDArray[np.float32], rows: int, tables: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    """Every row from its codes."""
    by_row = codes.reshape(rows, len(tables)).astype(np.int64)
    return np.concatenate([table[by_row[:, group]] for group, table in enumerate(tables)], axis=1)


def huffman_tree(counts: list[int]) -> NDArray[np.int32]:
    """Children of the inner nodes of fastText's Huffman tree; leaves are 0 … n-1, labels come most frequent first."""
    leaves = len(counts)
    weight = [*counts, *[10**15] * (leaves - 1)]
    children = np.zeros((leaves - 1, 2), np.int32)
    leaf, node = leaves - 1, leaves
    for parent in range(leaves, 2 * leaves - 1):
        for side in range(2):
            if leaf >= 0 and weight[leaf] < weight[node]:
                children[parent - leaves, side] = leaf
                leaf -= 1
            else:
                children[parent - leaves, side] = node
                node += 1
        weight[parent] = sum(weight[child] for child in children[parent - leaves])
    return children


FORMAT = "ingot-classifier-1"
DESCRIPTION = "classifier.json"
WEIGHTS = "weights.safetensors"
SIZES = ("word_ngrams", "min_characters", "max_characters", "buckets")


def save_model(folder: Path, model: LinearModel, about: dict[str, Any]) -> None:
    """Write a model; the folder appears whole or not at all."""
    assert model.bucket_rows is not None
    buckets = np.flatnonzero(model.bucket_rows >= 0)
    with atomic_folder(folder) as temporary:
        arrays: dict[str, np.ndarray] = {
            "rows": model.rows,
            "outputs": model.outputs,
            "words": np.ascontiguousarray(model.vocabulary.data),
            "word_ends": model.vocabulary.offsets[1:].copy(),
            "kept": buckets.astype(np.int32),
            "kept_rows": model.bucket_rows[buckets],
        }
        (temporary / WEIGHTS).write_bytes(save(arrays))  # save_file hides a full disk in an error of its own
        sizes = {name: getattr(model, name) for name in SIZES}
        write_json(temporary / DESCRIPTION, {"format": FORMAT, "labels": list(model.labels), **sizes, **about})


@lru_cache(maxsize=4)
def load_model(name: str) -> LinearModel:
    """A model of ours or of fastText; read once a process."""
    path = Path(name)
    if path.is_file():
        return read_fasttext(path)
    if not (path / DESCRIPTION).is_file():
        raise ArtifactError(
            "no classifier here", place=name, fix="give a folder of `ingot classifier train` or a fastText .bin or .ftz"
        )
    about = read_json(path / DESCRIPTION)
    if about.get("format") != FORMAT:
        raise ArtifactError(f"unknown format {about.get('format')!r}", place=name, fix="train the classifier again")
    arrays = load_file(path / WEIGHTS)
    bucket_rows = np.full(about["buckets"], -1, np.int32)
    bucket_rows[arrays["kept"]] = arrays["kept_rows"]
    return LinearModel(
        labels=tuple(about["labels"]),
        vocabulary=Texts(arrays["words"], np.concatenate([np.zeros(1, np.int64), arrays["word_ends"]])),
        rows=arrays["rows"],
        outputs=arrays["outputs"],
        bucket_rows=bucket_rows,
        **{size: about[size] for size in SIZES},
    )
