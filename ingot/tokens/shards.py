"""Writes and reads token shards: memory-mapped files of token ids, checked for damage.

    shards/index.json          {"version", "vocabulary_size", "end_of_text", "token_bytes": {"sha256"}, "sources": {NAME: entry}}
    shards/token_bytes.npy     int32 [vocabulary]: UTF-8 bytes of text that each token stands for; 0 for special tokens
    shards/NAME/tokens.bin     all documents one after the other, each ended by <|endoftext|>; little-endian unsigned
                               16-bit integers if the vocabulary allows it, 32-bit otherwise
    shards/NAME/documents.npy  int64 [2, documents]: offset of the first token, bytes of text
    shards/NAME/quality.npy    float32 [documents]

An entry of the index has tokens, documents, bytes, dtype, and sha256 by file. The source `validation` holds documents
that no other source holds. All arrays are memory-mapped, so opening costs nothing and a corpus may exceed the memory; the
offsets are contiguous, so that finding a token's document reads a few of them and copies none.
Sizes are checked on every open, checksums and all ids with `verify=True`, and ids again on each read.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ingot.workspace.config import content_hash
from ingot.workspace.errors import ArtifactError, DataError
from ingot.workspace.files import file_sha256, read_json, write_json

VERSION = 2  # of this layout; 1 had documents.npy the other way round
INDEX_FILE, TOKEN_BYTES_FILE = "index.json", "token_bytes.npy"
TOKENS_FILE, DOCUMENTS_FILE, QUALITY_FILE = "tokens.bin", "documents.npy", "quality.npy"
SOURCE_FILES = (TOKENS_FILE, DOCUMENTS_FILE, QUALITY_FILE)
AGAIN = "delete the stage's folder and run the tokenize stage again"


def token_dtype(vocabulary_size: int) -> str:
    """The smallest unsigned type that holds every id."""
    return "<u2" if vocabulary_size <= 1 << 16 else "<u4"


class SourceWriter:
    """Writes one source. The caller writes into a temporary folder and renames it when all sources are whole."""

    def __init__(self, shards: Path, name: str, vocabulary_size: int) -> None:
        self.name, self.vocabulary_size = name, vocabulary_size
        self.folder = shards / name
        self.folder.mkdir(parents=True)
        self.dtype = token_dtype(vocabulary_size)
        self._file = (self.folder / TOKENS_FILE).open("wb")
        self._starts, self._bytes = array("q"), array("q")  # 8 bytes a document, where a list takes 40
        self._quality = array("f")
        self._tokens = 0

    def append(self, id: str, tokens: Sequence[int], text_bytes: int, quality: float) -> None:
        """Add a document; `tokens` end with <|endoftext|>."""
        ids = np.asarray(tokens, dtype=np.int64)
        outside = ids[(ids < 0) | (ids >= self.vocabulary_size)]
        if len(outside):
            raise DataError(
                f"document {id!r} has token id {outside[0]} outside the vocabulary of {self.vocabulary_size}",
                place=f"source {self.name}",
                fix="tokenize with the tokenizer whose vocabulary size was given",
            )
        self._file.write(ids.astype(self.dtype).tobytes())
        self._starts.append(self._tokens)
        self._bytes.append(text_bytes)
        self._quality.append(quality)
        self._tokens += len(ids)

    def extend(
        self,
        tokens: NDArray[Any],
        starts: NDArray[np.int64],
        text_bytes: NDArray[np.int64],
        quality: NDArray[np.float32],
    ) -> None:
        """Add many documents: their tokens end to end, where each begins, and what is known of each."""
        if len(tokens) and int(tokens.max()) >= self.vocabulary_size:
            raise DataError(
                f"token id {tokens.max()} is outside the vocabulary of {self.vocabulary_size}",
                place=f"source {self.name}",
                fix="tokenize with the tokenizer whose vocabulary size was given",
            )
        self._file.write(np.ascontiguousarray(tokens.astype(self.dtype, copy=False)).data)
        self._starts.frombytes((starts + self._tokens).astype(np.int64).tobytes())
        self._bytes.frombytes(text_bytes.astype(np.int64).tobytes())
        self._quality.frombytes(quality.astype(np.float32).tobytes())
        self._tokens += len(tokens)

    def finish(self) -> dict[str, Any]:
        """Close the files and give the source's entry of the index; a source without documents is an error."""
        self.close()
        if not self._starts:
            raise DataError(
                "no document belongs to this source",
                place=f"source {self.name}",
                fix="loosen its conditions (kind, quality_at_least) or remove the source from the tokenize stage",
            )
        np.save(self.folder / DOCUMENTS_FILE, np.stack([np.asarray(self._starts), np.asarray(self._bytes)]))
        np.save(self.folder / QUALITY_FILE, np.asarray(self._quality, dtype=np.float32))
        return {
            "tokens": self._tokens,
            "documents": len(self._starts),
            "bytes": sum(self._bytes),
            "dtype": self.dtype,
            "sha256": {name: file_sha256(self.folder / name) for name in SOURCE_FILES},
        }

    def close(self) -> None:
        """Close the open file; safe to call twice."""
        self._file.close()


def write_index(
    shards: Path, entries: dict[str, dict[str, Any]], token_bytes: NDArray[np.int32], end_of_text: int
) -> None:
    """Write what belongs to all sources; the last step of writing shards."""
    np.save(shards / TOKEN_BYTES_FILE, token_bytes)
    index = {
        "version": VERSION,
        "vocabulary_size": len(token_bytes),
        "end_of_text": end_of_text,
        "token_bytes": {"sha256": file_sha256(shards / TOKEN_BYTES_FILE)},
        "sources": entries,
    }
    write_json(shards / INDEX_FILE, index)


class MappedSource:
    """One source, memory-mapped."""

    identity = ""
    """A hash of its entry in the index, with the checksums of its files: it differs between any two sources."""

    def __init__(self, folder: Path, entry: dict[str, Any], vocabulary_size: int) -> None:
        self.folder, self.name, self.vocabulary_size = folder, folder.name, vocabulary_size
        self.identity = content_hash(entry, digits=24)
        if not entry["tokens"] or not entry["documents"]:
            raise DataError("the source is empty", place=str(folder), fix=AGAIN)
        path, dtype = folder / TOKENS_FILE, np.dtype(entry["dtype"])
        expected = int(entry["tokens"]) * dtype.itemsize
        found = path.stat().st_size if path.is_file() else None
        if found != expected:
            problem = "missing" if found is None else f"{found} bytes instead of {expected}: truncated or damaged"
            raise ArtifactError(problem, place=str(path), fix=AGAIN)
        self.tokens: NDArray[Any] = np.asarray(np.memmap(path, dtype=dtype, mode="r"))  # still mapped, a plain array
        self.starts, self.text_bytes = _load_array(folder / DOCUMENTS_FILE, (2, int(entry["documents"])))
        self.quality = _load_array(folder / QUALITY_FILE, (int(entry["documents"]),))

    def __len__(self) -> int:
        return len(self.tokens)

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """The tokens from `start` up to `stop` as they are on disk; an id outside the vocabulary is an error."""
        ids = self.tokens[start:stop]
        if ids.size and ids.max() >= self.vocabulary_size:
            raise self._outside(start + int(ids.argmax()))
        return ids

    def take(self, positions: NDArray[np.int64]) -> NDArray[Any]:
        """The tokens at these positions; an id outside the vocabulary is an error."""
        ids: NDArray[Any] = self.tokens.take(positions)
        if ids.size and ids.max() >= self.vocabulary_size:
            raise self._outside(int(positions[ids.argmax()]))
        return ids

    def bounds(self, documents: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where the tokens of these documents begin and end."""
        last = len(self.starts) - 1
        after = self.starts.take(np.minimum(documents + 1, last))
        return self.starts.take(documents), np.where(documents == last, len(self), after)

    def _outside(self, position: int) -> DataError:
        return DataError(
            f"token {position} is {self.tokens[position]}, outside the vocabulary of {self.vocabulary_size}",
            place=str(self.folder / TOKENS_FILE),
            fix=AGAIN,
        )

    def verify(self, entry: dict[str, Any]) -> None:
        """Compare every file with its checksum and look at every id."""
        for name in SOURCE_FILES:
            _verify_file(self.folder / name, entry["sha256"][name])
        step = 1 << 24
        for start in range(0, len(self), step):
            self.read(start, start + step)


class Shards:
    """All sources of a shards folder."""

    def __init__(self, folder: Path, verify: bool = False) -> None:
        path = folder / INDEX_FILE
        if not path.is_file():
            raise ArtifactError(f"no {INDEX_FILE}", place=str(folder), fix="run the tokenize stage first")
        try:
            index = read_json(path)
            if index.get("version") != VERSION:
                raise ArtifactError(
                    f"the index has version {index.get('version', 1)}, this program reads version {VERSION}",
                    place=str(path),
                    fix=AGAIN,
                )
            self.vocabulary_size = int(index["vocabulary_size"])
            self.end_of_text = int(index["end_of_text"])
            self.token_bytes = _load_array(folder / TOKEN_BYTES_FILE, (self.vocabulary_size,))
            self.sources = {
                name: MappedSource(folder / name, entry, self.vocabulary_size)
                for name, entry in index["sources"].items()
            }
            if verify:
                _verify_file(folder / TOKEN_BYTES_FILE, index["token_bytes"]["sha256"])
                for name, source in self.sources.items():
                    source.verify(index["sources"][name])
        except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as error:
            raise ArtifactError(f"the index is damaged: {error!r}", place=str(path), fix=AGAIN) from error
        self.folder = folder

    def source(self, name: str) -> MappedSource:
        """The source of this name."""
        if name not in self.sources:
            raise ArtifactError(
                f"no source {name!r}; there are {', '.join(sorted(self.sources))}",
                place=str(self.folder),
                fix="use one of these names, or add the source to the tokenize stage",
            )
        return self.sources[name]


def _load_array(path: Path, shape: tuple[int, ...]) -> NDArray[Any]:
    if not path.is_file():
        raise ArtifactError("missing", place=str(path), fix=AGAIN)
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ArtifactError(f"truncated or damaged: {error}", place=str(path), fix=AGAIN) from error
    if array.shape != shape:
        raise ArtifactError(f"shape {array.shape} instead of {shape}", place=str(path), fix=AGAIN)
    return np.asarray(array)  # still mapped, a plain array


def _verify_file(path: Path, expected: str) -> None:
    if file_sha256(path) != expected:
        raise ArtifactError(
            "its checksum is not the one in index.json: the file is corrupt", place=str(path), fix=AGAIN
        )
