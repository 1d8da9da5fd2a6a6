"""Compares tokenizers on the same texts, for `ingot tokenizer compare`.

A tokenizer is a folder with tokenizer.json, such a file (also gzipped), or tiktoken's ranks (NAME.tiktoken, also gzipped, where
NAME says how text is split: r50k_base, cl100k_base, o200k_base). Texts come from a documents artifact, Parquet, JSON lines or
plain text; one column may divide them into groups.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ingot.tokens.bpe.encoder import FastEncoder
from ingot.tokens.bpe.rules import TIKTOKEN
from ingot.tokens.documents import document_files
from ingot.tokens.fertility import ALL, Encoder, measure
from ingot.tokens.tokenizer import TOKENIZER_FILE, Tokenizer
from ingot.workspace.errors import ArtifactError, DataError

RANKS_SUFFIX = ".tiktoken"


def encoder_at(path: Path) -> tuple[str, Encoder]:
    """The name and the encoder of the tokenizer at `path`."""
    if path.is_dir():
        return path.name, Tokenizer.load(path).encoder
    if not path.is_file():
        raise ArtifactError(
            "there is no tokenizer", place=str(path), fix="give a folder, a tokenizer.json or a .tiktoken file"
        )
    name = path.name.removesuffix(".gz")
    content = _content(path)
    if not name.endswith(RANKS_SUFFIX):
        return name.removesuffix(".json"), Tokenizer.from_files({TOKENIZER_FILE: content}, str(path)).encoder
    name = name.removesuffix(RANKS_SUFFIX)
    if name not in TIKTOKEN:
        raise ArtifactError(
            f"how {name!r} splits text is not known",
            place=str(path),
            fix=f"name the file after its encoding: {', '.join(TIKTOKEN)}",
        )
    return name, FastEncoder.of_ranks(TIKTOKEN[name][1], read_ranks(content, str(path)))


def _content(path: Path) -> bytes:
    """The content of a tokenizer's file, unpacked, of bounded size."""
    from ingot.data.read.problem import Unreadable
    from ingot.data.read.streams import whole

    try:
        with path.open("rb") as file:
            return whole(file, str(path))
    except (OSError, Unreadable) as error:
        raise ArtifactError(f"cannot be read: {error}", place=str(path), fix="copy the file again") from error


def read_ranks(content: bytes, place: str) -> dict[bytes, int]:
    """The tokens of a tiktoken file: a line `base64 rank` each."""
    try:
        pairs = [line.split() for line in content.splitlines() if line]
        return {base64.b64decode(token, validate=True): int(rank) for token, rank in pairs}
    except (ValueError, binascii.Error) as error:
        raise ArtifactError(f"not a file of ranks: {error}", place=place, fix="copy the file again") from error


def read_texts(paths: Sequence[Path], by: str | None, limit: int) -> Iterator[tuple[str, str]]:
    """(group, text) of all files, at most about `limit` bytes of text a file; the group is `all` without `by`."""
    for path in paths:
        left = limit
        for record in _records(path):
            text = record.get("text")
            if not isinstance(text, str):
                raise DataError("a record has no text", place=str(path), fix="give files with a column `text`")
            if by is not None and by not in record:
                raise DataError(f"a record has no column {by!r}", place=str(path), fix=f"it has {', '.join(record)}")
            yield (ALL if by is None else str(record[by])), text
            left -= len(text.encode("utf-8"))
            if left <= 0:
                break


def _records(path: Path) -> Iterator[Mapping[str, Any]]:
    import pyarrow.parquet

    from ingot.data.read.delimited import table_form, table_rows
    from ingot.data.read.problem import Unreadable
    from ingot.data.read.streams import whole, whole_lines

    if path.is_dir():
        for file in document_files(path):
            yield from _records(file)
        return
    kind = path.name.removesuffix(".gz").rsplit(".", 1)[-1]
    try:
        if kind == "parquet":
            for batch in pyarrow.parquet.ParquetFile(path).iter_batches(256):
                yield from batch.to_pylist()
            return
        with path.open("rb") as opened:
            if form := table_form(path.name):
                yield from (row for _, row in table_rows(opened, str(path), form))
            elif kind == "jsonl":
                yield from (json.loads(line) for line in whole_lines(opened, str(path)))
            else:
                yield {"text": whole(opened, str(path)).decode("utf-8")}
    except (OSError, ValueError, Unreadable, pyarrow.ArrowException) as error:
        raise DataError(
            f"cannot be read: {error}", place=str(path), fix="give .parquet, .jsonl, .csv or text, gzipped or not"
        ) from error


def compare(tokenizers: Sequence[Path], texts: Sequence[tuple[str, str]]) -> dict[str, dict[str, dict[str, Any]]]:
    """The statistics of each tokenizer by group."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for path in tokenizers:
        name, encoder = encoder_at(path)
        found[name if name not in found else str(path)] = measure(encoder, texts)
    return found
