"""Reads a split into tables of documents.

    for split in splits(source):
        problems = Problems()
        for table in read_split(split, source, problems):
            ...                                     # BASE_COLUMNS and the columns that the source keeps

Tables hold some megabytes of text each. Whatever could not be read as it stands is in `problems`; one bad record costs
nothing but itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow

from ingot.data.read.archive import read_archive
from ingot.data.read.config import SourceConfig
from ingot.data.read.crawl import read_warc
from ingot.data.read.delimited import read_table
from ingot.data.read.document import Document, cut, tables
from ingot.data.read.jsonl import read_jsonl
from ingot.data.read.mediawiki import read_mediawiki
from ingot.data.read.own import read_own
from ingot.data.read.parquet import read_arrow, read_parquet
from ingot.data.read.plain import read_code, read_html, read_text
from ingot.data.read.problem import ReadProblems, Unreadable
from ingot.data.read.python import read_metadata, read_python
from ingot.data.read.split import FilePiece, Split

READERS: dict[str, Callable[[FilePiece, Any, ReadProblems], Iterator[Any]]] = {
    "warc": read_warc,
    "html": read_html,
    "jsonl": read_jsonl,
    "csv": read_table,
    "tsv": read_table,
    "parquet": read_parquet,
    "arrow": read_arrow,
    "text": read_text,
    "mediawiki": read_mediawiki,
    "code": read_code,
    "archive": read_archive,
    "python": read_python,
    "metadata": read_metadata,
}


def read_split(split: Split, source: SourceConfig, problems: ReadProblems) -> Iterator[pyarrow.Table]:
    """The documents of a split in tables of bounded size, in the order of the files."""
    problems.stop = source.on_damage == "stop"
    return tables(found_in(split, source, problems), source)


def found_in(split: Split, source: SourceConfig, problems: ReadProblems) -> Iterator[Any]:
    """What the readers of the pieces give: documents, or whole tables of them."""
    for piece in split.pieces:
        found = READERS.get(piece.format, read_own)(piece, source, problems)
        try:
            yield from found if piece.limit is None else limited(found, piece, problems)
        except Unreadable as error:
            problems.add(piece.identity, error.rule, error.detail, size=piece.size)


def limited(found: Iterator[Any], piece: FilePiece, problems: ReadProblems) -> Iterator[Any]:
    """The first of them, until their texts reach the piece's limit."""
    left = piece.limit or 0
    for item in found:
        if left <= 0:
            problems.add(piece.identity, "budget", "used up: what follows is left out")
            return
        if isinstance(item, Document):
            left -= item.bytes
        else:
            item, left = cut(item, left)
        yield item
