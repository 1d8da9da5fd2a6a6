"""Reading the documents artifact, and choosing documents by their id.

Which documents are held out depends on nothing but their ids: not on the seed, the order of files, or the machine.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ingot.workspace.errors import ArtifactError, DataError

COLUMNS = ["id", "text", "kind", "quality"]
ROWS_PER_BATCH = 256


@dataclass(frozen=True)
class Document:
    """What the tokens room reads of a document."""

    id: str
    text: str
    kind: str
    quality: float


def document_files(folder: Path) -> list[Path]:
    """The Parquet files of a documents artifact, in order."""
    files = sorted(folder.glob("part-*.parquet"))
    if not files:
        raise ArtifactError("no part-*.parquet files", place=str(folder), fix="run the curate stage first")
    return files


def read_documents(folder: Path) -> Iterator[list[Document]]:
    """All documents in batches, in the order of the files: at most one batch is in memory."""
    for path in document_files(folder):
        for columns in _read_columns(path, COLUMNS):
            batch = [Document(*row) for row in zip(*(columns[name] for name in COLUMNS), strict=True)]
            for document in batch:
                for name in COLUMNS:
                    if getattr(document, name) is None:
                        raise DataError(
                            f"document {document.id!r} has no {name}", place=str(path), fix="run the curate stage again"
                        )
            yield batch


def read_ids(folder: Path) -> list[str]:
    """The ids of all documents, in order; two documents with the same id are an error."""
    ids = [id for path in document_files(folder) for columns in _read_columns(path, ["id"]) for id in columns["id"]]
    if len(set(ids)) < len(ids):
        twice = Counter(ids).most_common(1)[0][0]
        raise DataError(
            f"document id {twice!r} occurs twice", place=str(folder), fix="give every document an id of its own"
        )
    return ids


def _read_columns(path: Path, names: list[str]) -> Iterator[dict[str, list[Any]]]:
    """The named columns of one file, batch by batch."""
    import pyarrow
    import pyarrow.parquet

    try:
        file = pyarrow.parquet.ParquetFile(path)
        missing = [name for name in names if name not in file.schema_arrow.names]
        if missing:
            raise ArtifactError(
                f"no column {', '.join(missing)}", place=str(path), fix="make the documents with the curate stage"
            )
        for batch in file.iter_batches(ROWS_PER_BATCH, columns=names):
            yield batch.to_pydict()
    except (pyarrow.ArrowException, OSError) as error:
        raise ArtifactError(
            f"not a readable Parquet file: {error}", place=str(path), fix="run the curate stage again"
        ) from error


def place_of(id: str, purpose: str) -> float:
    """A number in [0, 1) that depends only on the id and on what it is used for; uniform over ids."""
    digest = hashlib.blake2b(f"{purpose}\0{id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def held_out(ids: Iterable[str], share: float) -> frozenset[str]:
    """The ids held out for validation: about `share` of them, at least one, never all."""
    places = {id: place_of(id, "held out") for id in ids}
    if len(places) < 2:
        raise DataError(
            f"{len(places)} documents: cannot train on some and validate on others",
            fix="curate at least two documents",
        )
    chosen = {id for id, place in places.items() if place < share} or {min(places, key=places.__getitem__)}
    if len(chosen) == len(places):
        chosen.remove(max(places, key=places.__getitem__))
    return frozenset(chosen)
