"""JSON lines: one object a line, plain or compressed. Ids made here are NAME:PATH@OFFSET of the uncompressed line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ingot.data.read.config import BASE_COLUMNS, RowsSource
from ingot.data.read.document import Document, checked, decoded
from ingot.data.read.lines import line_blocks, report_long
from ingot.data.read.problem import Problems
from ingot.data.read.split import Piece

LINE_SLACK = 4  # a line may be longer than its text: escapes and other columns


def read_jsonl(piece: Piece, source: RowsSource, problems: Problems) -> Iterator[Document]:
    """The documents of a range of a JSONL file."""
    for offset, block in line_blocks(piece, source.max_document_bytes * LINE_SLACK, problems):
        yield from parsed_lines(block, offset, piece, source, problems)


def parsed_lines(block: bytes, offset: int, piece: Piece, source: RowsSource, problems: Problems) -> Iterator[Document]:
    """One document a line, line by line."""
    for line in block.split(b"\n"):  # never splitlines: a text may hold U+2028 and the like
        place = f"{piece.identity}@{offset}"
        offset += len(line) + 1
        if not line or line.isspace():
            continue
        if len(line) > source.max_document_bytes * LINE_SLACK:
            report_long(piece, offset - len(line) - 1, len(line), source.max_document_bytes * LINE_SLACK, problems)
            continue
        try:
            row = json.loads(line)
        except UnicodeDecodeError as error:
            kept = source.bad_text == "repair"
            problems.add(place, "not UTF-8", f"at byte {error.start}", size=len(line), shown=line, kept=kept)
            if not kept:
                continue
            try:
                row = json.loads(line.decode("utf-8", "replace"))
            except (ValueError, RecursionError) as error_in_text:
                problems.add(place, "not JSON", f"({str(error_in_text)[:120]})", size=len(line), shown=line)
                continue
        except (ValueError, RecursionError) as error:
            problems.add(place, "not JSON", f"({str(error)[:120]})", size=len(line), shown=line)
            continue
        if not isinstance(row, dict):
            problems.add(place, "not a JSON object", f"({str(row)[:60]})", size=len(line), shown=line)
            continue
        document = row_document(row, place, source, problems)
        if document is not None:
            yield document


def row_document(row: dict[str, Any], place: str, source: RowsSource, problems: Problems) -> Document | None:
    """A row as a document, or None if it has no text that can be used."""
    value = row.get(source.text)
    if isinstance(value, str):
        text = checked(value, place, source, problems)
    elif isinstance(value, bytes):
        text = decoded(value, place, source, problems)
    else:
        problems.add(place, "no text", f"in column {source.text!r}", shown=str(row))
        return None
    if text is None:
        return None
    own = row.get(source.id)
    identity = str(own) if isinstance(own, str | int) and not isinstance(own, bool) and own != "" else place
    fields = {name: row.get(name) for name in (*BASE_COLUMNS[3:], *source.keep)}
    return Document(identity, text, fields)
