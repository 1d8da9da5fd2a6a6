"""Reads JSON lines: one object a line, plain or compressed, with a limit on how long a line may be.

Ids made here are NAME:PATH@OFFSET of the uncompressed line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ingot.data.read.config import BASE_COLUMNS, RowsSource
from ingot.data.read.document import Document, checked, decoded
from ingot.data.read.problem import ReadProblems, Unreadable
from ingot.data.read.split import FilePiece
from ingot.data.read.streams import chunks, compression_of, opened


def line_blocks(piece: FilePiece, max_line: int, problems: ReadProblems) -> Iterator[tuple[int, bytes]]:
    """Blocks of whole lines that start in the piece's range, each with its offset in the (uncompressed) file.

    A line much longer than `max_line` is skipped without being held in memory (one that is a little longer may come
    through: the limit is exact where lines are looked at). Damage ends the file after its good lines.
    """
    with opened(piece.path) as file:
        offset = max(0, piece.start - 1)  # the byte before tells whether a line starts exactly at `start`
        file.seek(offset)
        held: list[bytes] = []  # the beginning of a line whose end is not read yet
        size = 0
        skipping = piece.start > 0  # at first what is left of the line before; later a line that is too long
        too_long = False
        try:
            for chunk in chunks(file, compression_of(piece.path)):
                end_of_lines = chunk.rfind(b"\n") + 1
                if end_of_lines == 0:
                    size += len(chunk)
                    if not skipping:
                        held.append(chunk)
                        skipping = too_long = size > max_line
                        held = [] if too_long else held
                    continue
                begin = 0
                if skipping:
                    begin = chunk.index(b"\n") + 1
                    if too_long:
                        report_long(piece, offset, size + begin - 1, max_line, problems)
                    offset += size + begin
                    skipping = too_long = False
                block = b"".join([*held, chunk[begin:end_of_lines]])
                if 0 <= piece.end <= offset:
                    return
                if 0 <= piece.end <= offset + len(block):  # the last line is the one that holds the byte before `end`
                    yield offset, block[: block.index(b"\n", piece.end - 1 - offset) + 1]
                    return
                yield offset, block
                offset += len(block)
                held, size = [chunk[end_of_lines:]], len(chunk) - end_of_lines
        except Unreadable as error:
            problems.add(f"{piece.identity}@{offset}", error.rule, error.detail)
            return
        if too_long:
            report_long(piece, offset, size, max_line, problems)
        elif size and not skipping and not 0 <= piece.end <= offset:
            yield offset, b"".join(held)


def report_long(piece: FilePiece, offset: int, size: int, max_line: int, problems: ReadProblems) -> None:
    """Count a line that was skipped."""
    problems.add(f"{piece.identity}@{offset}", "too long", f"(a line of {size:,} bytes > {max_line:,})", size=size)


LINE_SLACK = 4  # a line may be longer than its text: escapes and other columns


def read_jsonl(piece: FilePiece, source: RowsSource, problems: ReadProblems) -> Iterator[Document]:
    """The documents of a range of a JSONL file."""
    for offset, block in line_blocks(piece, source.max_document_bytes * LINE_SLACK, problems):
        yield from parsed_lines(block, offset, piece, source, problems)


def parsed_lines(
    block: bytes, offset: int, piece: FilePiece, source: RowsSource, problems: ReadProblems
) -> Iterator[Document]:
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


def row_document(row: dict[str, Any], place: str, source: RowsSource, problems: ReadProblems) -> Document | None:
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
