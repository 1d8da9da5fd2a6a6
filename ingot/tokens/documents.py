"""Reads the documents artifact by columns, and chooses the documents that are held out, by a hash of their ids.

Which documents are held out depends on nothing but a 64-bit hash of their ids: not on the seed, the order of files, or the
machine.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ingot.workspace.config import content_hash
from ingot.workspace.errors import ArtifactError, DataError
from ingot.workspace.files import file_sha256

if TYPE_CHECKING:
    import pyarrow

PART_BYTES = 32_000_000  # about so much Arrow data is one task, and a kill loses no more
ROWS_PER_BATCH = 1024
AGAIN = "run the curate stage again"


@dataclass(frozen=True)
class FilePart:
    """Some row groups of a file: the input of one task."""

    path: str
    row_groups: tuple[int, ...]
    bytes: int
    key: str

    def batches(self, columns: Sequence[str]) -> Iterator[pyarrow.RecordBatch]:
        """The named columns of its documents, some at a time. Ids and texts are never missing and are valid UTF-8."""
        return _batches(Path(self.path), columns, self.row_groups)


def document_files(folder: Path) -> list[Path]:
    """The Parquet files of a documents artifact, in order."""
    files = sorted(folder.glob("part-*.parquet"))
    if not files:
        raise ArtifactError("no part-*.parquet files", place=str(folder), fix="run the curate stage first")
    return files


def parts_of(folder: Path) -> list[FilePart]:
    """All documents as parts of about `PART_BYTES`, in order."""
    import pyarrow.parquet

    parts = []
    for path in document_files(folder):
        with _named(path):
            metadata = pyarrow.parquet.read_metadata(path)
        checksum, groups, size = file_sha256(path), list[int](), 0
        filled = [group for group in range(metadata.num_row_groups) if metadata.row_group(group).num_rows]
        for group in filled:
            groups.append(group)
            size += metadata.row_group(group).total_byte_size
            if size >= PART_BYTES or group == filled[-1]:
                parts.append(FilePart(str(path), tuple(groups), size, content_hash([checksum, groups], 24)))
                groups, size = [], 0
    return parts


def columns_of(folder: Path) -> frozenset[str]:
    """The columns that every file has."""
    import pyarrow.parquet

    found = []
    for path in document_files(folder):
        with _named(path):
            found.append(set(pyarrow.parquet.read_schema(path).names))
    return frozenset(set.intersection(*found))


def read_columns(folder: Path, columns: Sequence[str]) -> Iterator[pyarrow.RecordBatch]:
    """The named columns of all documents, in order: at most one batch is in memory."""
    for path in document_files(folder):
        yield from _batches(path, columns, None)


def _batches(path: Path, columns: Sequence[str], row_groups: Sequence[int] | None) -> Iterator[pyarrow.RecordBatch]:
    import pyarrow.parquet

    with _named(path):
        file = pyarrow.parquet.ParquetFile(path)
        missing = [name for name in columns if name not in file.schema_arrow.names]
        if missing:
            raise ArtifactError(
                f"no column {', '.join(missing)}", place=str(path), fix="make the documents with the curate stage"
            )
        for batch in file.iter_batches(ROWS_PER_BATCH, row_groups, list(columns), use_threads=False):
            batch.validate(full=True)
            for name in {"id", "text"} & set(columns):
                if batch.column(name).null_count:
                    row = batch.column(name).is_null().index(True).as_py()
                    document = repr(batch.column("id")[row].as_py()) if "id" in columns else str(row)
                    raise DataError(f"document {document} has no {name}", place=str(path), fix=AGAIN)
            yield batch


class _named:
    """Adds the name of the file to Arrow's errors inside the block."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        import pyarrow

        if isinstance(error, pyarrow.ArrowException | OSError):
            raise ArtifactError(f"not a readable Parquet file: {error}", place=str(self.path), fix=AGAIN) from error


def id_hashes(ids: Iterable[str], purpose: str) -> NDArray[np.uint64]:
    """A number below 2^64 for each id, which depends only on the id and on what it is used for; uniform over ids."""
    digests = [hashlib.blake2b(f"{purpose}\0{id}".encode(), digest_size=8).digest() for id in ids]
    return np.frombuffer(b"".join(digests), ">u8").astype(np.uint64)


@dataclass(frozen=True)
class HeldOut:
    """Which documents are held out for validation: about `share` of them, at least one, never all."""

    share: float
    always: int | None = None  # the hash of the one document that is held out, if the share takes none
    never: int | None = None  # the hash of the one that is not, if the share takes all

    @classmethod
    def of(cls, hashes: NDArray[np.uint64], share: float) -> HeldOut:
        """For documents with these hashes."""
        if len(hashes) < 2:
            raise DataError(
                f"{len(hashes)} documents: cannot train on some and validate on others",
                fix="curate at least two documents; `cut_at` of a source of files cuts a single long text into several",
            )
        taken = int(cls(share).mask(hashes).sum())
        return cls(
            share, int(hashes.min()) if taken == 0 else None, int(hashes.max()) if taken == len(hashes) else None
        )

    def mask(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Which of the documents with these hashes are held out."""
        taken: NDArray[np.bool_] = hashes / 2.0**64 < self.share
        if self.always is not None:
            taken |= hashes == self.always
        if self.never is not None:
            taken &= hashes != self.never
        return taken


HELD_OUT = "held out"


def held_out(folder: Path, share: float) -> tuple[HeldOut, int]:
    """Which documents of the artifact are held out, and how many there are in all; two with the same id are an error."""
    found = [id_hashes(batch.column("id").to_pylist(), HELD_OUT) for batch in read_columns(folder, ["id"])]
    hashes = np.concatenate([np.zeros(0, np.uint64), *found])
    in_order = np.sort(hashes)
    twice = set(in_order[1:][in_order[1:] == in_order[:-1]].tolist())
    if twice:
        _complain_about(folder, twice)
    return HeldOut.of(hashes, share), len(hashes)


def _complain_about(folder: Path, hashes: set[int]) -> None:
    """Name an id that occurs twice, given the hashes that do."""
    ids: Counter[str] = Counter()
    for batch in read_columns(folder, ["id"]):
        column = batch.column("id").to_pylist()
        ids.update(id for id, hash in zip(column, id_hashes(column, HELD_OUT).tolist(), strict=True) if hash in hashes)
    id, times = ids.most_common(1)[0]
    if times > 1:  # else two ids share a hash, which is no error
        raise DataError(
            f"document id {id!r} occurs twice", place=str(folder), fix="give every document an id of its own"
        )
